// Package tracereport summarizes a trace of weft run --trace: how long the ranks were in which call, which
// rank waited for which, and how many bytes went where.
package tracereport

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/perfetto"
	"github.com/weft-mpi/weft/internal/printable"
)

// Job is the summary of a trace.
type Job struct {
	Begin, End time.Duration // of all events
	Ranks      []*Rank       // in the order of the file
	Calls      map[string]*Call
	Regions    map[string]*Call
	Messages   int
	Put, Got   int64            // bytes of operations on windows
	Bytes      map[[2]int]int64 // sent, put and got, by source and target rank
	Counts     map[[2]int]int   // messages likewise
	// by endpoint, if a rank has used several
	Endpoints [contextid.MaxEndpoints]Messages
}

// Messages counts sent messages.
type Messages struct {
	Count int
	Bytes int64
}

// Rank is the summary of one rank.
type Rank struct {
	Number int
	Host   string
	Label  string // the trace's note on omitted events; empty if it has all

	InCalls, Asleep time.Duration // of all its goroutines together
	Sent, Received  int64         // bytes
	// messages for which a call waited before they were sent, and for how long; and messages that had been
	// sent before their receive's call, and for how long
	LateSends, LateReceives Waits

	spans []span
}

// Waits counts waits.
type Waits struct {
	Count int
	Time  time.Duration
}

// Call is the total of the calls of a name, at all ranks.
type Call struct {
	Count        int
	Time, Asleep time.Duration
}

// span is a time in a call, or asleep.
type span struct {
	begin, end time.Duration
	asleep     bool
}

// track is a track with its open slices.
type track struct {
	rank *Rank
	open []slice
}

type slice struct {
	name  string
	begin time.Duration
	kind  string // its category
}

// end is one end of a message.
type end struct {
	at, call time.Duration // call is the beginning of the call that received it
	rank     *Rank
}

// Limits of a trace that is read.
const (
	maxRanks = 1 << 16
	maxOpen  = 1 << 10
)

// reader reads a trace.
type reader struct {
	job       *Job
	first     bool
	sequences map[uint32]*names
	tracks    map[uint64]*track
	ranks     map[int]*Rank
	sends     map[uint64]end // messages with one end read so far
	receives  map[uint64]end
}

// names are the interned names of a sequence.
type names struct{ names, categories, notes map[uint64]string }

// ErrNotOurs is the error for a trace that weft has not written.
var ErrNotOurs = errors.New("no trace of weft run --trace")

// Read reads a trace, without trusting it.
func Read(in io.Reader) (*Job, error) {
	r := &reader{sequences: map[uint32]*names{}, tracks: map[uint64]*track{}, ranks: map[int]*Rank{},
		sends: map[uint64]end{}, receives: map[uint64]end{}, first: true,
		job: &Job{Calls: map[string]*Call{}, Regions: map[string]*Call{}, Bytes: map[[2]int]int64{},
			Counts: map[[2]int]int{}}}
	packets := perfetto.NewReader(in)
	for {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := r.packet(p); err != nil {
			return nil, err
		}
	}
	if len(r.job.Ranks) == 0 {
		return nil, ErrNotOurs
	}
	return r.job, nil
}

func (r *reader) packet(p *perfetto.Packet) error {
	s := r.sequences[p.Sequence]
	if s == nil {
		s = &names{map[uint64]string{}, map[uint64]string{}, map[uint64]string{}}
		r.sequences[p.Sequence] = s
	}
	if i := p.Interned; i != nil {
		for _, n := range i.Names {
			s.names[n.ID] = n.Text
		}
		for _, n := range i.Categories {
			s.categories[n.ID] = n.Text
		}
		for _, n := range i.Annotations {
			s.notes[n.ID] = n.Text
		}
	}
	if p.Track != nil {
		if err := r.declare(p.Track); err != nil {
			return err
		}
	}
	if p.Event == nil {
		return nil
	}
	t := r.tracks[p.Event.Track]
	if t == nil || p.Time > 1<<62 {
		return ErrNotOurs
	}
	at := time.Duration(p.Time)
	if r.first {
		r.job.Begin, r.first = at, false
	}
	r.job.Begin, r.job.End = min(r.job.Begin, at), max(r.job.End, at)
	return r.event(t, p.Event, at, s)
}

func (r *reader) declare(k *perfetto.Track) error {
	if k.Process != nil {
		number, host := 0, ""
		if n, err := fmt.Sscanf(k.Process.Name, "rank %d on", &number); n != 1 || err != nil || number < 0 ||
			number >= maxRanks || r.ranks[number] != nil {
			return ErrNotOurs
		}
		_, host, _ = strings.Cut(k.Process.Name, " on ")
		rank := &Rank{Number: number, Host: printable.Line(host)}
		r.ranks[number] = rank
		r.job.Ranks = append(r.job.Ranks, rank)
		r.tracks[k.ID] = &track{rank: rank}
		return nil
	}
	parent := r.tracks[k.Parent]
	if parent == nil {
		return ErrNotOurs
	}
	r.tracks[k.ID] = &track{rank: parent.rank}
	return nil
}

func (r *reader) event(t *track, e *perfetto.Event, at time.Duration, s *names) error {
	switch e.Type {
	case perfetto.SliceBegin:
		if len(t.open) == maxOpen {
			return fmt.Errorf("%w: %d slices within one another", ErrNotOurs, maxOpen)
		}
		name := printable.Line(s.names[e.Name])
		t.open = append(t.open, slice{name, at, s.categories[e.Category]})
		r.onWindow(t, name, e, s)
	case perfetto.SliceEnd:
		if len(t.open) == 0 {
			return fmt.Errorf("%w: the end of a slice that has not begun", ErrNotOurs)
		}
		ended := t.open[len(t.open)-1]
		t.open = t.open[:len(t.open)-1]
		r.ended(t, ended, at)
	case perfetto.Instant:
		r.instant(t, e, at, s)
	}
	return nil
}

// asleep is the name of a slice in which a goroutine sleeps in a call.
const asleep = "asleep"

// windowOperations are the names of calls on windows that move bytes: to the target, from it, or both.
var windowOperations = map[string]struct{ put, get bool }{
	"Win.Put": {put: true}, "Win.PutView": {put: true}, "Win.Rput": {put: true},
	"Win.Accumulate": {put: true}, "Win.Raccumulate": {put: true},
	"Win.Get": {get: true}, "Win.GetView": {get: true}, "Win.Rget": {get: true},
	"Win.GetAccumulate": {true, true}, "Win.RgetAccumulate": {true, true},
	"Win.FetchAndOp": {true, true}, "Win.CompareAndSwap": {true, true},
}

// onWindow counts the bytes of an operation on a window.
func (r *reader) onWindow(t *track, name string, e *perfetto.Event, s *names) {
	o, peer, bytes := windowOperations[name], s.number(e, "peer"), s.number(e, "bytes")
	if peer < 0 || peer >= maxRanks || bytes < 0 {
		return
	}
	here, there := t.rank.Number, int(peer)
	if o.put {
		r.job.Put = plus(r.job.Put, bytes)
		r.moved(here, there, bytes)
	}
	if o.get {
		r.job.Got = plus(r.job.Got, bytes)
		r.moved(there, here, bytes)
	}
}

// moved counts bytes that went from one rank to another.
func (r *reader) moved(from, to int, bytes int64) {
	pair := [2]int{from, to}
	r.job.Bytes[pair] = plus(r.job.Bytes[pair], bytes)
}

// plus adds two numbers of a file that are not negative. If the sum overflows, it is the largest number.
func plus[T ~int64](a, b T) T {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// ended counts a slice. A call that consists of others, such as a Fence with its barrier, counts as one.
func (r *reader) ended(t *track, s slice, at time.Duration) {
	took := max(at-s.begin, 0)
	add := func(table map[string]*Call, name string, count int, slept time.Duration, all time.Duration) {
		c := table[name]
		if c == nil {
			c = &Call{}
			table[name] = c
		}
		c.Count, c.Time, c.Asleep = c.Count+count, plus(c.Time, all), plus(c.Asleep, slept)
	}
	switch {
	case s.kind == "region":
		add(r.job.Regions, s.name, 1, 0, took)
	case s.name == asleep:
		t.rank.Asleep = plus(t.rank.Asleep, took)
		t.rank.spans = append(t.rank.spans, span{s.begin, at, true})
		if c := t.call(); c != nil {
			add(r.job.Calls, c.name, 0, took, 0)
		}
	case t.call() == nil:
		t.rank.InCalls = plus(t.rank.InCalls, took)
		t.rank.spans = append(t.rank.spans, span{s.begin, at, false})
		add(r.job.Calls, s.name, 1, 0, took)
	}
}

// call returns the outermost open call; nil for none.
func (t *track) call() *slice {
	for i := range t.open {
		if t.open[i].kind != "region" {
			return &t.open[i]
		}
	}
	return nil
}

// number returns an event's annotation with a name; -1 for none.
func (s *names) number(e *perfetto.Event, name string) int64 {
	for _, a := range e.Annotations {
		if s.notes[a.Name] == name && a.Number != nil {
			return *a.Number
		}
	}
	return -1
}

// instant reads one end of a message.
func (r *reader) instant(t *track, e *perfetto.Event, at time.Duration, s *names) {
	peer, bytes := s.number(e, "peer"), max(s.number(e, "bytes"), 0)
	switch name := s.names[e.Name]; {
	case name == "send" && peer >= 0 && peer < maxRanks:
		r.job.Messages++
		t.rank.Sent = plus(t.rank.Sent, bytes)
		r.moved(t.rank.Number, int(peer), bytes)
		r.job.Counts[[2]int{t.rank.Number, int(peer)}]++
		if k := s.number(e, "endpoint"); k >= 0 && k < contextid.MaxEndpoints {
			on := &r.job.Endpoints[k]
			on.Count, on.Bytes = on.Count+1, plus(on.Bytes, bytes)
		}
		for _, id := range e.Flows {
			r.message(id, end{at: at, rank: t.rank}, r.sends, r.receives, true)
		}
	case name == "receive":
		t.rank.Received = plus(t.rank.Received, bytes)
		call := at
		if c := t.call(); c != nil {
			call = c.begin
		}
		for _, id := range e.Ends {
			r.message(id, end{at: at, call: call, rank: t.rank}, r.receives, r.sends, false)
		}
	case len(e.Annotations) == 0:
		t.rank.Label = printable.Line(name)
	}
}

// message handles one end of a message, and both if the other one is known.
func (r *reader) message(id uint64, e end, own, others map[uint64]end, isSend bool) {
	other, ok := others[id]
	if !ok {
		own[id] = e
		return
	}
	delete(others, id)
	send, receive := e, other
	if !isSend {
		send, receive = other, e
	}
	if early := send.at - receive.call; early > 0 {
		receive.rank.LateSends.add(early)
	} else {
		receive.rank.LateReceives.add(-early)
	}
}

func (w *Waits) add(by time.Duration) {
	w.Count++
	w.Time = plus(w.Time, by)
}
