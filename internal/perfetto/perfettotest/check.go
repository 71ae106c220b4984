// Package perfettotest checks traces against the rules that Perfetto's trace processor has for them.
package perfettotest

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/perfetto"
)

// Trace is what Check has found in a trace.
type Trace struct {
	Sequences map[uint32]*Sequence
	Tracks    map[uint64]*perfetto.Track
	Events    []Event // as they are in the file
	Arrows    int
}

// Sequence is a sequence of packets with what it has interned.
type Sequence struct{ names, categories, notes map[uint64]string }

// Event is an event with its time, and its names instead of their numbers.
type Event struct {
	*perfetto.Event
	Time  uint64
	Name  string
	Notes map[string]perfetto.Annotation
}

// Check reads a trace and checks it:
//
//   - a sequence begins with a packet that clears its state, and what a packet takes from the interned names
//     is there, and its flags say so;
//   - tracks have numbers of their own and parents that were declared before; events are on declared tracks,
//     values on counters and nothing else there;
//   - the slices of a track nest, and all have ends;
//   - a flow has one beginning and one end, which comes later.
func Check(t *testing.T, in io.Reader) *Trace {
	c := &Trace{Sequences: map[uint32]*Sequence{}, Tracks: map[uint64]*perfetto.Track{}}
	r := perfetto.NewReader(in)
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		c.packet(t, p)
	}
	c.slices(t)
	c.flows(t)
	return c
}

func (c *Trace) packet(t *testing.T, p *perfetto.Packet) {
	require.NotZero(t, p.Sequence)
	s := c.Sequences[p.Sequence]
	if s == nil {
		require.Equal(t, uint64(perfetto.Cleared), p.Flags, "the first packet of sequence %d", p.Sequence)
		s = &Sequence{map[uint64]string{}, map[uint64]string{}, map[uint64]string{}}
		c.Sequences[p.Sequence] = s
	} else {
		require.Equal(t, uint64(perfetto.NeedsInterned), p.Flags)
	}
	if i := p.Interned; i != nil {
		for table, list := range map[*map[uint64]string][]perfetto.Name{&s.names: i.Names,
			&s.categories: i.Categories, &s.notes: i.Annotations} {
			for _, n := range list {
				require.NotZero(t, n.ID)
				require.NotContains(t, *table, n.ID, "interned twice")
				(*table)[n.ID] = n.Text
			}
		}
	}
	if k := p.Track; k != nil {
		require.NotZero(t, k.ID)
		require.NotContains(t, c.Tracks, k.ID, "declared twice")
		if k.Parent != 0 {
			require.Contains(t, c.Tracks, k.Parent)
		} else {
			require.NotNil(t, k.Process, "a track without a parent")
		}
		c.Tracks[k.ID] = k
	}
	if e := p.Event; e != nil {
		require.NotZero(t, p.Time)
		track := c.Tracks[e.Track]
		require.NotNil(t, track, "an event on a track that is not declared")
		require.Equal(t, track.Counter != 0, e.Type == perfetto.Counter)
		event := Event{Event: e, Time: p.Time, Notes: map[string]perfetto.Annotation{}}
		if e.Type == perfetto.SliceBegin || e.Type == perfetto.Instant {
			require.Contains(t, s.names, e.Name)
			event.Name = s.names[e.Name]
			if e.Category != 0 {
				require.Contains(t, s.categories, e.Category)
			}
		}
		for _, a := range e.Annotations {
			require.Contains(t, s.notes, a.Name)
			event.Notes[s.notes[a.Name]] = a
		}
		c.Events = append(c.Events, event)
	}
}

// slices checks that the slices of each track nest.
func (c *Trace) slices(t *testing.T) {
	byTime := slices.Clone(c.Events)
	slices.SortStableFunc(byTime, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
	open := map[uint64]int{}
	for _, e := range byTime {
		switch e.Type {
		case perfetto.SliceBegin:
			open[e.Track]++
		case perfetto.SliceEnd:
			open[e.Track]--
			require.GreaterOrEqual(t, open[e.Track], 0, "an end without a beginning")
		}
	}
	for track, n := range open {
		require.Zero(t, n, "slices of track %d that have no end", track)
	}
}

// flows checks that each flow begins once and ends once, later.
func (c *Trace) flows(t *testing.T) {
	begins, ends := map[uint64]uint64{}, map[uint64]uint64{}
	for _, e := range c.Events {
		for _, id := range e.Flows {
			require.NotContains(t, begins, id)
			begins[id] = e.Time
		}
		for _, id := range e.Ends {
			require.NotContains(t, ends, id)
			ends[id] = e.Time
		}
	}
	require.Len(t, ends, len(begins))
	for id, at := range begins {
		require.Contains(t, ends, id)
		require.Less(t, at, ends[id], "an arrow back in time")
	}
	c.Arrows = len(begins)
}

// Count is how many events of a type have a name.
func (c *Trace) Count(of perfetto.Type, name string) (n int) {
	for _, e := range c.Events {
		if e.Type == of && e.Name == name {
			n++
		}
	}
	return n
}
