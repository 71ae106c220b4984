package mpi

import (
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// snapshot makes the rank's snapshot.
func (r *stateReporter) snapshot() *snapshot.Rank {
	phase := *r.phase.Load()
	c := r.world.Load()
	if phase == snapshot.Starting {
		s := &snapshot.Rank{Phase: phase, Still: time.Since(r.began)}
		s.Waits = []snapshot.Wait{{Call: snapshot.Init, Site: r.site, Since: s.Still}}
		return s
	}
	if c == nil { // Init has failed
		return &snapshot.Rank{Phase: phase, Still: time.Since(r.began)}
	}
	s := &snapshot.Rank{Rank: c.rank, Size: c.size, Phase: phase, Comms: c.job.comms.describe()}
	if s.Phase == snapshot.Running {
		r.describe(s, c)
		return s
	}
	s.Still = time.Since(r.moved)
	s.Waits = []snapshot.Wait{{Call: snapshot.Finalize, Since: s.Still,
		Ops: []snapshot.Op{{Kind: snapshot.Collective, Name: snapshot.Finalize}}}}
	traffic, leaving := c.e.Traffic()
	s.Channels, s.Leaving = channels(traffic), leaving
	s.Locks = c.job.comms.locks()
	return s
}

// describe completes the snapshot of a rank between Init and Finalize.
func (r *stateReporter) describe(s *snapshot.Rank, c *Comm) {
	st := c.e.Describe()
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
		w := c.job.comms.wait(&st.Waits[i])
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
	s.Locks = c.job.comms.locks()
	s.Channels, s.Leaving = channels(st.Traffic), st.Leaving
	if c.job.wire.Together() {
		return // whoever asks knows which goroutines are of which rank
	}
	if s.Active, s.At = active(waiting); s.Active == 0 {
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

// active counts the goroutines that may act by themselves, and returns where one of them is.
func active(waiting map[uint64]bool) (n int, at string) {
	list, all := program.Goroutines()
	if !all {
		n = 1 // some are cut off
	}
	for _, g := range list {
		if waiting[g.ID] || !g.MayAct() {
			continue
		}
		n++
		if at == "" {
			at = g.Site
		}
	}
	return n, at
}

// begun returns how many collectives with numbers have been begun.
func (c *commState) begun() uint32 {
	if c.checker != nil {
		return c.coll.checked.Load()
	}
	return c.coll.number.Load()
}

// describe lists the communicators.
func (l *comms) describe() []snapshot.Comm {
	list := l.all()
	var out []snapshot.Comm
	for _, c := range list[:min(len(list), snapshot.MaxComms)] {
		d := snapshot.Comm{ID: c.context, Name: *c.label.Load(), Begun: uint64(c.begun())}
		if c.members != nil {
			for _, w := range c.members.world {
				d.Ranks = append(d.Ranks, int(w))
			}
		}
		out = append(out, d)
	}
	return out
}

// locks lists the window locks that this rank holds.
func (l *comms) locks() (held []snapshot.Held) {
	for _, c := range l.all() {
		w := c.window.Load()
		if w == nil || w.freed.Load() {
			continue
		}
		for rank := range w.access {
			if w.access[rank].Load()&(accessShared|accessExclusive) != 0 && len(held) < snapshot.MaxLocks {
				held = append(held, snapshot.Held{Comm: c.context, Peer: w.comm.worldRank(rank)})
			}
		}
	}
	return held
}

// wait describes a wait of the engine in terms of communicators.
func (l *comms) wait(w *engine.Wait) snapshot.Wait {
	s := snapshot.Wait{Goroutine: w.Goroutine, Since: w.Since, Bounded: w.Bounded}
	s.Call, s.Site = calledFrom(w.Callers)
	for i := range w.Operations {
		if len(s.Ops) == snapshot.MaxOps {
			s.MoreOps++
			continue
		}
		o := l.operation(&w.Operations[i])
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
	_, site := calledFrom(w.Callers)
	return site == ""
}

func (l *comms) operation(o *engine.Operation) snapshot.Op {
	s := snapshot.Op{Kind: snapshot.Recv, Comm: contextid.Communicator(o.Context), Peer: o.Peer, Tag: o.Tag,
		Bytes: o.Bytes, Moving: o.Moving}
	switch {
	case o.Lock:
		s.Kind = snapshot.Lock
		return s
	case o.Collective != nil:
		s.Kind, s.Needs = snapshot.Collective, o.Needs
		s.Peer, s.Tag = 0, 0
		s.Name, s.Number = o.Collective.Call.Operation.String(), l.number(s.Comm, o)
	case contextid.Comparison.Is(o.Context): // the comparison before a collective
		s.Kind, s.Needs = snapshot.Collective, []int{o.Peer}
		s.Peer, s.Tag = 0, 0
		if c := l.find(o.Context); c != nil {
			s.Number = uint64(c.coll.checked.Load())
		}
	case o.Send:
		s.Kind = snapshot.Send
	}
	if s.Kind == snapshot.Recv {
		s.Name = internalMessage(o)
	}
	if s.Kind != snapshot.Collective {
		if s.Peer == AnySource {
			s.Peer = snapshot.Any
		}
		if s.Tag == AnyTag {
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
		return "the part"
	case o.Tag == postTag:
		return "the Post"
	case o.Tag == completeTag:
		return "the Complete"
	}
	return "the partitions"
}

// number returns how many collectives had been begun on a communicator when an operation was: the largest
// number up to the latest one whose low bits are those in the operation's tag. It is 0 for a persistent one.
func (l *comms) number(id uint32, o *engine.Operation) uint64 {
	number, bits, ok := engine.CollectiveNumber(o.Tag)
	l.mu.Lock()
	c := l.byID[id]
	l.mu.Unlock()
	if !ok || c == nil || c.checker != nil { // in checking mode comparisons are counted
		return 0
	}
	begun := c.coll.number.Load()
	return uint64(begun - (begun-number)&(1<<bits-1))
}
