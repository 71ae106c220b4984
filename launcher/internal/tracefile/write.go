// Package tracefile writes the records of a job's ranks as one trace in Perfetto's format. A rank's packets
// are one sequence of Perfetto: names interned in it hold for it alone. The viewer draws an arrow (a flow)
// from a send to its receive.
package tracefile

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/perfetto"
	"github.com/weft-mpi/weft/internal/printable"
	"github.com/weft-mpi/weft/internal/trace"
)

// Source has the records of a rank, and its host.
type Source struct {
	*trace.Rank
	Host string
}

// Summary describes the contents of a file.
type Summary struct {
	Events, Messages int
	Unpaired         int           // ends of messages that get no arrow
	Omitted          map[int]int64 // by rank: events for which it had no room
	Rough            []string      // hosts whose clocks were compared only by the time of day
}

// begins is the time of the first event of a file, in ns. It is not 0, which viewers take for no time.
const begins = int64(time.Millisecond)

// counterEvery is the minimum time between two values of a counter.
const counterEvery = int64(100 * time.Microsecond)

// Write writes the trace of at least one rank.
func Write(w io.Writer, sources []Source) (Summary, error) {
	sum := Summary{Omitted: map[int]int64{}}
	ranks := make([]*trace.Rank, len(sources))
	for i, s := range sources {
		ranks[i] = s.Rank
	}
	clocks := clocksOf(ranks)
	messages := pair(ranks)
	order(clocks, messages.messages)
	messages.settle(clocks)
	for i := range messages.messages {
		if messages.messages[i].paired {
			sum.Messages++
		}
	}
	sum.Unpaired = messages.unpaired
	var zero int64
	for i, r := range ranks {
		if first := clocks[i].convert(r.Epoch); i == 0 || first < zero {
			zero = first
		}
	}
	out := bufio.NewWriterSize(w, 1<<20)
	told := map[*clock]bool{}
	for i, s := range sources {
		if s.Omitted > 0 {
			sum.Omitted[s.Rank.Rank] = int64(s.Omitted)
		}
		if c := clocks[i]; c.rough && !told[c] {
			told[c] = true
			sum.Rough = append(sum.Rough, s.Host)
		}
		t := &writer{out: out, source: s, clock: clocks[i], zero: zero, pairs: messages, ends: messages.of[i],
			tracks: map[uint32]*goroutineTrack{}, names: map[string]uint64{}, notes: map[string]uint64{},
			phases: map[channel]int64{}, channels: map[int64]*counter{}}
		if err := t.write(); err != nil {
			return sum, err
		}
		sum.Events += t.events
	}
	return sum, out.Flush()
}

// writer writes the part of one rank, as its own sequence.
type writer struct {
	out    *bufio.Writer
	source Source
	clock  *clock
	zero   int64
	pairs  *pairing
	ends   []int // of the rank's messages
	events int
	buf    []byte
	last   int64 // the latest time

	lastTrack    uint64
	tracks       map[uint32]*goroutineTrack
	names, notes map[string]uint64 // interned
	pending      *perfetto.Interned
	moved        [contextid.MaxEndpoints]struct{ sent, received counter }
	phases       map[channel]int64
	channels     map[int64]*counter
}

// channel is a channel of the rank, which has one to each peer and endpoint.
type channel struct {
	peer     int32
	endpoint int
}

// goroutineTrack is the track of a goroutine, with its open slices.
type goroutineTrack struct {
	id   uint64
	open []slice
}

// slice is a call, or a region with its number (a section that the program names with mpi.Region).
type slice struct{ region int32 }

const ofCall = -1

// counter is a track of values.
type counter struct {
	id    uint64
	value int64
	told  int64 // time of the last value
}

func (t *writer) write() error {
	r := t.source.Rank
	process := t.processTrack()
	err := t.packet(&perfetto.Packet{Flags: perfetto.Cleared, Track: &perfetto.Track{ID: process,
		Process: &perfetto.Process{PID: int32(r.Rank + 1),
			Name:   fmt.Sprintf("rank %d on %s", r.Rank, printable.Line(t.source.Host)),
			Labels: []string{fmt.Sprintf("%d of %d", r.Rank, r.Size)}}}})
	if err != nil {
		return err
	}
	next := 0 // index of the next end of a message
	for e := range r.Records() {
		t.events++
		at := t.clock.convert(r.Epoch+e.Time) - t.zero + begins
		t.last = max(t.last, at)
		switch e.Kind {
		case trace.Sent, trace.Matched:
			err = t.message(&e, at, t.ends[next])
			next++
		case trace.Phase:
			err = t.phase(&e, at)
		default:
			err = t.slice(&e, at)
		}
		if err != nil {
			return err
		}
	}
	if r.Omitted > 0 {
		if err := t.event(t.last, &perfetto.Event{Type: perfetto.Instant, Track: process,
			Name: t.name(fmt.Sprintf("%d events after this are left out", r.Omitted))}); err != nil {
			return err
		}
	}
	for _, g := range t.tracks {
		for range g.open {
			if err := t.event(t.last, &perfetto.Event{Type: perfetto.SliceEnd, Track: g.id}); err != nil {
				return err
			}
		}
	}
	return t.lastCounts()
}

func (t *writer) lastCounts() error {
	for i := range t.moved {
		for _, c := range []*counter{&t.moved[i].sent, &t.moved[i].received} {
			if c.id != 0 {
				c.told = 0
				if err := t.count(c, "", perfetto.Bytes, 0, t.last); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// slice writes the beginning or the end of a call or a region, or both ends of a sleep.
func (t *writer) slice(e *trace.Record, at int64) error {
	g, err := t.track(e.Goroutine)
	if err != nil {
		return err
	}
	r := t.source.Rank
	switch e.Kind {
	case trace.CallBegin:
		g.open = append(g.open, slice{ofCall})
		event := &perfetto.Event{Type: perfetto.SliceBegin, Track: g.id,
			Name: t.name(named(r.Calls, int(e.What), "call")), Category: 1}
		if e.Peer >= 0 {
			event.Annotations = append(event.Annotations, t.number("peer", int64(e.Peer)))
			if e.Tag >= 0 {
				event.Annotations = append(event.Annotations, t.number("tag", int64(e.Tag)))
			}
		}
		if e.Bytes > 0 {
			event.Annotations = append(event.Annotations, t.number("bytes", e.Bytes))
		}
		return t.event(at, event)
	case trace.RegionBegin:
		g.open = append(g.open, slice{e.Peer})
		return t.event(at, &perfetto.Event{Type: perfetto.SliceBegin, Track: g.id, Category: 2,
			Name: t.name(named(r.Regions, int(e.Peer), "region"))})
	case trace.CallEnd:
		return t.end(g, ofCall, at)
	case trace.RegionEnd:
		return t.end(g, e.Peer, at)
	case trace.Slept:
		if err := t.event(max(at-e.Bytes, begins), &perfetto.Event{Type: perfetto.SliceBegin, Track: g.id,
			Name: t.name("asleep"), Category: 1}); err != nil {
			return err
		}
		return t.event(at, &perfetto.Event{Type: perfetto.SliceEnd, Track: g.id})
	}
	return nil
}

// end ends the innermost slice of a kind, and all slices within it. It skips a region that has ended with
// another one, or on another goroutine.
func (t *writer) end(g *goroutineTrack, region int32, at int64) error {
	i := len(g.open) - 1
	for i >= 0 && g.open[i].region != region {
		i--
	}
	if i < 0 {
		return nil
	}
	for range g.open[i:] {
		if err := t.event(at, &perfetto.Event{Type: perfetto.SliceEnd, Track: g.id}); err != nil {
			return err
		}
	}
	g.open = g.open[:i]
	return nil
}

// message writes one end of a message: an instant on the track of the goroutine that sent or received it.
func (t *writer) message(e *trace.Record, at int64, number int) error {
	g, err := t.track(e.Goroutine)
	if err != nil {
		return err
	}
	event := &perfetto.Event{Type: perfetto.Instant, Track: g.id, Category: 3}
	endpoint := contextid.Endpoint(e.Context)
	c, what := &t.moved[endpoint].sent, "bytes sent"
	if e.Kind == trace.Sent {
		event.Name = t.name("send")
	} else {
		event.Name = t.name("receive")
		c, what = &t.moved[endpoint].received, "bytes received"
	}
	if number >= 0 && t.pairs.messages[number].paired {
		m := &t.pairs.messages[number]
		flow := []uint64{uint64(number) + 1}
		if e.Kind == trace.Sent {
			at, event.Flows = m.sent-t.zero+begins, flow
		} else {
			event.Ends = flow
		}
	}
	event.Annotations = []perfetto.Annotation{t.number("peer", int64(e.Peer)), t.number("bytes", e.Bytes),
		t.text("communicator", t.communicator(e.Context))}
	if contextid.PointToPoint.Is(e.Context) {
		event.Annotations = append(event.Annotations, t.number("tag", int64(e.Tag)))
	}
	if t.source.Several {
		event.Annotations = append(event.Annotations, t.number("endpoint", int64(endpoint)))
		what += fmt.Sprintf(" on endpoint %d", endpoint)
	}
	if err := t.event(at, event); err != nil {
		return err
	}
	return t.count(c, what, perfetto.Bytes, e.Bytes, at)
}

// communicator names the communicator of a context, and says what the context is for.
func (t *writer) communicator(context uint32) string {
	id := contextid.Communicator(context)
	name := contextid.Named(t.source.Comms[id], id)
	if context != id {
		name += ", of a call"
	}
	return printable.Line(name)
}

// phase counts the channels in each phase. A channel's phase is the index of the buffer slot size
// (WEFT_PHASES) that it uses now. It begins in the first phase.
func (t *writer) phase(e *trace.Record, at int64) error {
	c := channel{e.Peer, contextid.Endpoint(e.Context)}
	before, known := t.phases[c]
	t.phases[c] = e.Bytes
	if known {
		if err := t.inPhase(before, -1, at); err != nil {
			return err
		}
	}
	return t.inPhase(e.Bytes, 1, at)
}

// inPhase counts a channel that enters or leaves a phase.
func (t *writer) inPhase(phase, by, at int64) error {
	c := t.channels[phase]
	if c == nil {
		c = &counter{}
		t.channels[phase] = c
	}
	c.told = 0
	return t.count(c, fmt.Sprintf("channels in phase %d", phase), perfetto.Count, by, at)
}

// count adds to a counter, and writes its value unless it did so less than counterEvery ago.
func (t *writer) count(c *counter, name string, unit perfetto.Unit, by, at int64) error {
	if c.id == 0 {
		c.id = t.newTrack()
		if err := t.packet(&perfetto.Packet{Flags: perfetto.NeedsInterned, Track: &perfetto.Track{ID: c.id,
			Parent: t.processTrack(), Name: name, Counter: unit}}); err != nil {
			return err
		}
	}
	c.value += by
	if c.told != 0 && at-c.told < counterEvery {
		return nil
	}
	c.told = at
	return t.event(at, &perfetto.Event{Type: perfetto.Counter, Track: c.id, Value: c.value})
}

// track returns the track of a goroutine.
func (t *writer) track(goroutine uint32) (*goroutineTrack, error) {
	g := t.tracks[goroutine]
	if g != nil {
		return g, nil
	}
	g = &goroutineTrack{id: t.newTrack()}
	t.tracks[goroutine] = g
	return g, t.packet(&perfetto.Packet{Flags: perfetto.NeedsInterned, Track: &perfetto.Track{ID: g.id,
		Parent: t.processTrack(), Name: fmt.Sprintf("goroutine %d", goroutine)}})
}

// processTrack returns the number of the process's track. The upper half of a track's number is the rank; the
// process has the first track.
func (t *writer) processTrack() uint64 { return (uint64(t.source.Rank.Rank) + 1) << 32 }

func (t *writer) newTrack() uint64 {
	t.lastTrack++
	return t.processTrack() + t.lastTrack
}

func named(names []string, i int, what string) string {
	if i >= 0 && i < len(names) {
		return printable.Line(names[i])
	}
	return fmt.Sprintf("%s %d", what, i)
}

// categories are interned with the first event of a rank.
var categories = []perfetto.Name{{ID: 1, Text: "mpi"}, {ID: 2, Text: "region"}, {ID: 3, Text: "message"}}

func (t *writer) intern() *perfetto.Interned {
	if t.pending == nil {
		t.pending = &perfetto.Interned{}
	}
	return t.pending
}

// name interns the name of an event. It is written with the next event.
func (t *writer) name(text string) uint64 {
	id := t.names[text]
	if id == 0 {
		if len(t.names) == 0 {
			t.intern().Categories = categories
		}
		id = uint64(len(t.names) + 1)
		t.names[text] = id
		i := t.intern()
		i.Names = append(i.Names, perfetto.Name{ID: id, Text: text})
	}
	return id
}

func (t *writer) note(text string) uint64 {
	id := t.notes[text]
	if id == 0 {
		id = uint64(len(t.notes) + 1)
		t.notes[text] = id
		i := t.intern()
		i.Annotations = append(i.Annotations, perfetto.Name{ID: id, Text: text})
	}
	return id
}

func (t *writer) number(name string, value int64) perfetto.Annotation {
	return perfetto.Annotation{Name: t.note(name), Number: &value}
}

func (t *writer) text(name, text string) perfetto.Annotation {
	return perfetto.Annotation{Name: t.note(name), Text: text}
}

func (t *writer) event(at int64, e *perfetto.Event) error {
	p := &perfetto.Packet{Time: uint64(max(at, 1)), Flags: perfetto.NeedsInterned, Event: e,
		Interned: t.pending}
	t.pending = nil
	return t.packet(p)
}

func (t *writer) packet(p *perfetto.Packet) error {
	p.Sequence = uint32(t.source.Rank.Rank + 1)
	t.buf = p.Append(t.buf[:0])
	_, err := t.out.Write(t.buf)
	return err
}
