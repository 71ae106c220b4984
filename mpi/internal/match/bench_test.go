package match

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

type tableN = Table[int, int]

// load is a set of receives and as many messages. They meet in the opposite order, the worst for a queue that
// is walked.
type load struct {
	receives []Posted[int]
	messages []Message[int]
}

func newLoad(n int, source func(i int) int32, tag func(i int) int32) *load {
	l := &load{receives: make([]Posted[int], n), messages: make([]Message[int], n)}
	for i := range n {
		l.receives[i].Source, l.receives[i].Tag = source(i), tag(i)
		l.messages[i].Source, l.messages[i].Tag = source(i), tag(i)
	}
	return l
}

func (l *load) expected(m *tableN) (met int) {
	for i := range l.receives {
		m.Post(&l.receives[i])
	}
	for i := len(l.messages) - 1; i >= 0; i-- {
		if m.Arrive(0, l.messages[i].Source, l.messages[i].Tag) != nil {
			met++
		}
	}
	return met
}

func (l *load) unexpected(m *tableN) (met int) {
	for i := range l.messages {
		m.AddUnexpected(&l.messages[i])
	}
	for i := len(l.receives) - 1; i >= 0; i-- {
		if m.Post(&l.receives[i]) != nil {
			met++
		}
	}
	return met
}

func constant(v int32) func(int) int32 { return func(int) int32 { return v } }
func counting(i int) int32             { return int32(i) }

// In the steady state nothing is allocated, whatever the shape of the queues.
func TestNothingIsAllocated(t *testing.T) {
	for name, l := range map[string]*load{
		"one":          newLoad(1, constant(1), constant(1)),
		"same tag":     newLoad(100, constant(1), constant(1)),
		"many tags":    newLoad(1000, constant(1), counting),
		"many sources": newLoad(300, counting, constant(1)),
	} {
		m := &tableN{}
		assert.Equal(t, len(l.receives), l.expected(m), name)
		assert.Equal(t, len(l.messages), l.unexpected(m), name)
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			l.expected(m)
			l.unexpected(m)
		}), name)
	}
}

// A long queue of distinct tags is not searched: the places looked at grow with the queue's length, not its
// square.
func TestALongQueueIsNotSearched(t *testing.T) {
	longest := func(q *queue[Posted[int]]) (n int) {
		for _, c := range q.chains {
			length := 0
			for p := c.first; p != nil; p = p.nextTag {
				length++
			}
			n = max(n, length)
		}
		return n
	}
	for _, stride := range []int32{1, 2, 3, 16, 100, 1000, 1024, 4096, 65536, 100000} {
		m := &tableN{}
		l := newLoad(10000, constant(1), func(i int) int32 { return int32(i) * stride })
		for i := range l.receives {
			m.Post(&l.receives[i])
		}
		q := &m.bins.find(0, 1).posted
		assert.Empty(t, q.chains, "nobody has looked for anything")
		last := &l.receives[len(l.receives)-1]
		assert.Equal(t, last, m.Arrive(0, 1, last.Tag))
		assert.NotEmpty(t, q.chains)
		assert.LessOrEqual(t, longest(q), 8, "tags %d apart", stride)
	}
}

func BenchmarkMatch(b *testing.B) {
	shapes := []struct {
		name string
		load *load
	}{
		{"one", newLoad(1, constant(1), constant(1))},
		{"window64", newLoad(64, constant(1), constant(100))},
		{"tags16", newLoad(16, constant(1), counting)},
		{"tags32", newLoad(32, constant(1), counting)},
		{"tags64", newLoad(64, constant(1), counting)},
		{"tags10000", newLoad(10000, constant(1), counting)},
		{"sources256", newLoad(256, counting, constant(1))},
	}
	for _, s := range shapes {
		b.Run("expected/"+s.name, func(b *testing.B) {
			m := &tableN{}
			b.ReportAllocs()
			for n := 0; n < b.N; n += len(s.load.receives) {
				s.load.expected(m)
			}
		})
		b.Run("unexpected/"+s.name, func(b *testing.B) {
			m := &tableN{}
			b.ReportAllocs()
			for n := 0; n < b.N; n += len(s.load.receives) {
				s.load.unexpected(m)
			}
		})
	}
	b.Run("expected/anySource", func(b *testing.B) {
		m := &tableN{}
		p := &Posted[int]{Source: AnySource, Tag: AnyTag}
		b.ReportAllocs()
		for range b.N {
			m.Post(p)
			m.Arrive(0, 3, 1)
		}
	})
}
