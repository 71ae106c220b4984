package observe

import (
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// Snapshot describes the calls of the rank that are in progress.
func (r *Reporter) Snapshot() *snapshot.Rank {
	phase := *r.phase.Load()
	o := r.observer.Load()
	if phase == snapshot.Starting {
		s := &snapshot.Rank{Phase: phase, Still: time.Since(r.began)}
		s.Waits = []snapshot.Wait{{Call: snapshot.Init, Site: r.site, Since: s.Still}}
		return s
	}
	if o == nil { // Init has failed
		return &snapshot.Rank{Phase: phase, Still: time.Since(r.began)}
	}
	e, comms := o.rank.Hub, o.rank.Comms.List()
	s := &snapshot.Rank{Rank: e.Rank(), Size: e.Size(), Phase: phase, Comms: describe(comms)}
	s.Locks, s.Open = locks(comms), open(comms)
	if s.Phase == snapshot.Running {
		r.describe(s, &o.rank)
		return s
	}
	s.Still = time.Since(r.moved)
	s.Waits = []snapshot.Wait{{Call: snapshot.Finalize, Since: s.Still,
		Ops: []snapshot.Op{{Kind: snapshot.Collective, Name: snapshot.Finalize}}}}
	traffic, leaving := e.Traffic()
	s.Channels, s.Leaving = channels(traffic), leaving
	return s
}

// describe completes the snapshot of a rank between Init and Finalize.
func (r *Reporter) describe(s *snapshot.Rank, k *Rank) {
	st := k.Hub.Describe()
	if st.Activity != r.activity {
		r.activity, r.moved = st.Activity, time.Now()
	}
	s.Progress, s.Still = st.Activity, time.Since(r.moved)
	waiting := map[uint64]bool{}
	for i := range st.Waits {
		waiting[st.Waits[i].Goroutine] = true
		if ofComparison(&st.Waits[i]) {
			continue
		}
		if len(s.Waits) == snapshot.MaxWaits {
			s.MoreWaits++
			continue
		}
		w := k.wait(&st.Waits[i])
		w.Bounded = w.Bounded || r.bounded.Load()
		s.Waits = append(s.Waits, w)
	}
	for _, m := range st.Unexpected {
		if !contextid.PointToPoint.Is(m.Context) {
			continue
		}
		if len(s.Unexpected) == snapshot.MaxMessages {
			s.More++
			continue
		}
		s.Unexpected = append(s.Unexpected, snapshot.Message{Comm: m.Context, From: m.Source, Tag: m.Tag,
			Bytes: m.Bytes})
	}
	s.Channels, s.Leaving = channels(st.Traffic), st.Leaving
	if k.Wire.Together() {
		return // the caller knows which goroutines belong to which rank
	}
	list, all := program.Goroutines()
	if !all {
		s.Active = 1 // some are cut off
	}
	if countActive(s, list, waiting); s.Active == 0 {
		s.Later = program.Later()
	}
}

func channels(traffic []engine.Traffic) []snapshot.Channel {
	var list []snapshot.Channel
	for _, t := range traffic[:min(len(traffic), snapshot.MaxChannels)] {
		list = append(list, snapshot.Channel{Peer: t.Peer, Sent: t.Sent, Received: t.Received})
	}
	return list
}

// countActive counts the goroutines that may act by themselves, and sets where the first of them is.
func countActive(s *snapshot.Rank, list []program.Goroutine, waiting map[uint64]bool) {
	for _, g := range list {
		if waiting[g.ID] || !g.MayAct() {
			continue
		}
		s.Active++
		if s.At == "" {
			s.At, s.Call = g.Site, g.Call
		}
	}
}

// describe lists communicators.
func describe(list []Communicator) []snapshot.Comm {
	var out []snapshot.Comm
	for _, c := range list[:min(len(list), snapshot.MaxComms)] {
		d := snapshot.Comm{ID: c.ID, Name: c.Name, Begun: uint64(c.Begun)}
		for _, w := range c.Ranks {
			d.Ranks = append(d.Ranks, int(w))
		}
		out = append(out, d)
	}
	return out
}

// locks lists the window locks that this rank holds.
func locks(list []Communicator) (held []snapshot.Held) {
	for _, c := range list {
		for _, peer := range c.Held {
			if len(held) < snapshot.MaxLocks {
				held = append(held, snapshot.Held{Comm: c.ID, Peer: peer})
			}
		}
	}
	return held
}

// open lists the Puts and Gets of this rank that are not ended.
func open(list []Communicator) (transfers []snapshot.Open) {
	for _, c := range list {
		for _, o := range c.Open[:min(len(c.Open), snapshot.MaxLocks-len(transfers))] {
			transfers = append(transfers, snapshot.Open{Comm: c.ID, Peer: o.Rank, Puts: o.Puts, Gets: o.Gets,
				Since: o.Since})
		}
	}
	return transfers
}

// UnderWay describes the calls of the program that goroutines wait in.
func (o *Observer) UnderWay() (calls []string) {
	named := &snapshot.Rank{Comms: describe(o.rank.Comms.List())}
	for _, w := range o.rank.Hub.Describe().Waits {
		s := o.rank.wait(&w)
		if s.Call != "" && !ofComparison(&w) {
			calls = append(calls, deadlock.Describe(named, &s))
		}
	}
	return calls
}

// wait describes a wait of the engine in terms of communicators.
func (k *Rank) wait(w *engine.Wait) snapshot.Wait {
	s := snapshot.Wait{Goroutine: w.Goroutine, Since: w.Since, Bounded: w.Bounded}
	s.Call, s.Site = program.CalledFrom(w.Callers)
	for i := range w.Operations {
		if len(s.Ops) == snapshot.MaxOps {
			s.MoreOps++
			continue
		}
		o := k.operation(&w.Operations[i])
		if contextid.Comparison.Is(w.Operations[i].Context) {
			o.Name = s.Call
		}
		s.Ops = append(s.Ops, o)
	}
	return s
}

// ofComparison reports whether a wait is one of weft's own goroutines, which compares a non-blocking
// collective in checking mode.
func ofComparison(w *engine.Wait) bool {
	if len(w.Operations) == 0 || !contextid.Comparison.Is(w.Operations[0].Context) {
		return false
	}
	_, site := program.CalledFrom(w.Callers)
	return site == ""
}

func (k *Rank) operation(o *engine.Operation) snapshot.Op {
	s := snapshot.Op{Kind: snapshot.Recv, Comm: contextid.Communicator(o.Context), Peer: o.Peer, Tag: o.Tag,
		Bytes: o.Bytes, Moving: o.Moving}
	switch {
	case o.Lock:
		s.Kind = snapshot.Lock
		return s
	case o.Collective:
		s.Kind, s.Needs = snapshot.Collective, o.Needs
		s.Peer, s.Tag = 0, 0
		s.Name, s.Number = o.Call.String(), k.number(o)
	case contextid.Comparison.Is(o.Context): // the comparison before a collective
		s.Kind, s.Needs = snapshot.Collective, []int{o.Peer}
		s.Peer, s.Tag = 0, 0
		c, _ := k.Comms.Find(o.Context)
		s.Number = uint64(c.Begun)
	case o.Send:
		s.Kind = snapshot.Send
	}
	if s.Kind == snapshot.Recv {
		s.Name = internalMessage(o)
	}
	if s.Kind != snapshot.Collective {
		if s.Peer == engine.AnySource {
			s.Peer = snapshot.Any
		}
		if s.Tag == engine.AnyTag {
			s.Tag = snapshot.Any
		}
	}
	return s
}

// internalMessage names a message of weft's own that a call waits for; empty for a message of the program.
func internalMessage(o *engine.Operation) string {
	switch {
	case contextid.PointToPoint.Is(o.Context):
		return ""
	case !contextid.Exposure.Is(o.Context):
		return snapshot.PartOfCall
	case o.Tag == contextid.PostTag:
		return "the Post"
	case o.Tag == contextid.CompleteTag:
		return "the Complete"
	}
	return "the partitions"
}

// number returns how many collectives had been begun on a communicator when an operation was: the largest
// number up to the latest one whose low bits are those in the operation's tag. It is 0 for a persistent one.
func (k *Rank) number(o *engine.Operation) uint64 {
	number, bits, ok := engine.CollectiveNumber(o.Tag)
	c, found := k.Comms.Find(o.Context)
	if !ok || !found || c.Checked { // in checking mode comparisons are counted
		return 0
	}
	return uint64(c.Begun - (c.Begun-number)&(1<<bits-1))
}
