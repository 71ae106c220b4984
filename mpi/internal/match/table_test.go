package match

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type table = Table[string, string]

func receive(context uint32, source, tag int32, name string) *Posted[string] {
	return &Posted[string]{Context: context, Source: source, Tag: tag, Value: name}
}

func message(context uint32, source, tag int32, name string) *Message[string] {
	return &Message[string]{Context: context, Source: source, Tag: tag, Value: name}
}

func post(t *testing.T, m *table, p *Posted[string]) {
	t.Helper()
	require.Nil(t, m.Post(p), "receive %s found a message", p.Value)
}

func arrives(t *testing.T, m *table, context uint32, source, tag int32, want string) {
	t.Helper()
	p := m.Arrive(context, source, tag)
	if want == "" {
		require.Nil(t, p)
		return
	}
	require.NotNil(t, p, "no receive for a message that %s was to take", want)
	require.Equal(t, want, p.Value)
}

func TestTheReceivePostedFirstTakesTheMessage(t *testing.T) {
	m := &table{}
	post(t, m, receive(0, AnySource, 5, "any source"))
	post(t, m, receive(0, 3, AnyTag, "any tag"))
	post(t, m, receive(0, 3, 5, "exact"))
	post(t, m, receive(0, AnySource, AnyTag, "anything"))

	arrives(t, m, 0, 3, 5, "any source")
	arrives(t, m, 0, 3, 5, "any tag")
	arrives(t, m, 0, 3, 5, "exact")
	arrives(t, m, 0, 3, 5, "anything")
	arrives(t, m, 0, 3, 5, "")
}

func TestTheMessageThatArrivedFirstIsTaken(t *testing.T) {
	m := &table{}
	m.AddUnexpected(message(0, 2, 7, "first"))
	m.AddUnexpected(message(0, 1, 7, "second"))
	m.AddUnexpected(message(0, 1, 8, "third"))
	m.AddUnexpected(message(0, 1, 7, "fourth"))

	assert.Equal(t, "second", m.Post(receive(0, 1, 7, "")).Value)
	assert.Equal(t, "first", m.Post(receive(0, AnySource, 7, "")).Value)
	assert.Equal(t, "third", m.Post(receive(0, 1, AnyTag, "")).Value)
	assert.Equal(t, "fourth", m.Post(receive(0, AnySource, AnyTag, "")).Value)
	assert.Nil(t, m.Post(receive(0, AnySource, AnyTag, "")))
}

func TestContextsDoNotMix(t *testing.T) {
	m := &table{}
	post(t, m, receive(1, AnySource, AnyTag, "one"))
	post(t, m, receive(2, 0, 0, "two"))
	arrives(t, m, 3, 0, 0, "")
	arrives(t, m, 2, 0, 0, "two")
	arrives(t, m, 2, 0, 0, "")
	arrives(t, m, 1, 0, 0, "one")

	m.AddUnexpected(message(1, 0, 0, "one"))
	assert.Nil(t, m.Probe(2, AnySource, AnyTag))
	assert.Equal(t, "one", m.Probe(1, AnySource, AnyTag).Value)
}

func TestAProbedMessageStaysUntilItIsTaken(t *testing.T) {
	m := &table{}
	assert.Nil(t, m.Probe(0, 1, 1))
	m.AddUnexpected(message(0, 1, 1, "a"))
	m.AddUnexpected(message(0, 1, 1, "b"))
	a := m.Probe(0, AnySource, 1)
	require.Equal(t, "a", a.Value)
	require.Same(t, a, m.Probe(0, 1, AnyTag))
	assert.True(t, m.RemoveUnexpected(a))
	assert.False(t, m.RemoveUnexpected(a))
	assert.Equal(t, "b", m.Post(receive(0, 1, 1, "")).Value)
}

func TestWithdrawTellsWhetherTheReceiveHasMatched(t *testing.T) {
	m := &table{}
	first, second := receive(0, AnySource, 1, "first"), receive(0, 4, 1, "second")
	post(t, m, first)
	post(t, m, second)
	assert.True(t, m.RemovePosted(first))
	assert.False(t, m.RemovePosted(first))
	arrives(t, m, 0, 4, 1, "second")
	assert.False(t, m.RemovePosted(second))
	arrives(t, m, 0, 4, 1, "")
}

func TestPostingTwiceIsFoundOut(t *testing.T) {
	m := &table{}
	p := receive(0, 1, 1, "")
	post(t, m, p)
	assert.Panics(t, func() { m.Post(p) })
	u := message(0, 2, 1, "")
	m.AddUnexpected(u)
	assert.Panics(t, func() { m.AddUnexpected(u) })
}

func TestReceivesThatNameADeadSourceCanBeFailed(t *testing.T) {
	m := &table{}
	for i, source := range []int32{1, 2, AnySource, 2, 1, 2} {
		post(t, m, receive(uint32(i%2), source, int32(i), fmt.Sprint(i)))
	}
	m.AddUnexpected(message(5, 2, 0, "from the dead"))
	failed := map[string]bool{}
	for p := range m.Posted() {
		if p.Source == 2 {
			failed[p.Value] = m.RemovePosted(p)
		}
	}
	assert.Equal(t, map[string]bool{"1": true, "3": true, "5": true}, failed)
	for u := range m.Unexpected() {
		assert.Equal(t, "from the dead", u.Value)
		assert.True(t, m.RemoveUnexpected(u))
	}
	posted, unexpected := m.Lengths()
	assert.Equal(t, []int{3, 0}, []int{posted, unexpected})
	arrives(t, m, 0, 1, 0, "0")
}

func TestALoopOverTheTableMayStop(t *testing.T) {
	m := &table{}
	for source := range int32(40) {
		post(t, m, receive(0, source, 0, ""))
		m.AddUnexpected(message(1, source, 0, ""))
	}
	seen := 0
	for range m.Posted() {
		if seen++; seen == 7 {
			break
		}
	}
	for range m.Unexpected() {
		if seen++; seen == 14 {
			break
		}
	}
	assert.Equal(t, 14, seen)
}

func TestReleasedContextsGiveTheirMemoryBack(t *testing.T) {
	m := &table{}
	post(t, m, receive(7, 99, 3, "stays"))
	for context := uint32(100); context < 1000; context++ {
		for source := range int32(20) {
			post(t, m, receive(context, source, 1, "a"))
			arrives(t, m, context, source, 1, "a")
		}
		m.Release(context)
	}
	m.Release(7)
	assert.LessOrEqual(t, len(m.bins.slots), 64)
	assert.LessOrEqual(t, len(m.bins.spare), 20)
	arrives(t, m, 7, 99, 3, "stays")
}

// The table and the rule, written as two plain lists, give the same answers for random operations: few
// sources and tags, so that much matches; many tags, so that queues grow and are indexed; with wildcards rare
// and frequent.
func TestTheTableFollowsTheRule(t *testing.T) {
	var matched, wild, indexed int
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		contexts, sources := 1+r.Uint32N(3), 1+r.Int32N(6)
		tags := []int32{1, 3, 50, 1000}[r.IntN(4)]
		wildcards := []float64{0.02, 0.2, 0.7}[r.IntN(3)]
		source := func() int32 {
			if r.Float64() < wildcards {
				return AnySource
			}
			return r.Int32N(sources)
		}
		tag := func() int32 {
			if r.Float64() < wildcards {
				return AnyTag
			}
			return r.Int32N(tags)
		}
		w := &pair{table: &Table[int, int]{}}
		for step := range 3000 {
			var err error
			// The balance tips to and fro, so that either queue grows long and drains again.
			receives := 4
			if step/500%2 == 1 {
				receives = 8
			}
			switch context, n := r.Uint32N(contexts), r.IntN(16); {
			case n < receives:
				err = w.post(context, source(), tag())
			case n < 12:
				err = w.arrive(context, r.Int32N(sources), r.Int32N(tags))
			case n < 14:
				err = w.probe(context, source(), tag(), n == 13)
			case n == 14:
				err = w.withdraw(r.Int())
			case r.IntN(20) == 0:
				err = w.failSource(r.Int32N(sources))
			case r.IntN(20) == 0:
				w.table.Release(context)
			}
			require.NoError(t, err, "seed %d, step %d", seed, step)
			w.note()
			if step%250 == 0 {
				require.NoError(t, w.check(), "seed %d, step %d", seed, step)
			}
		}
		require.NoError(t, w.check(), "seed %d", seed)
		matched, wild, indexed = matched+w.matched, wild+w.fromWild, indexed+w.indexedBin
	}
	// The comparison means something only if all this happened.
	assert.Greater(t, matched, 10000)
	assert.Greater(t, wild, 1000)
	assert.Greater(t, indexed, 10000)
}

func FuzzTable(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	long := make([]byte, 0, 400)
	for i := range 200 {
		long = append(long, 0, byte(i))
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, script []byte) {
		w := &pair{table: &Table[int, int]{}}
		for len(script) >= 2 {
			op, arg := script[0], script[1]
			script = script[2:]
			context := uint32(op >> 7)
			source, tag := int32(op>>4&7), int32(arg)
			wildSource, wildTag := source-1, tag-1
			var err error
			switch op & 15 {
			case 0, 1, 2, 3, 4:
				err = w.post(context, wildSource, wildTag)
			case 5, 6, 7, 8, 9:
				err = w.arrive(context, source, tag)
			case 10:
				err = w.probe(context, wildSource, wildTag, false)
			case 11:
				err = w.probe(context, wildSource, wildTag, true)
			case 12, 13:
				err = w.withdraw(int(arg))
			case 14:
				err = w.failSource(source)
			case 15:
				w.table.Release(context)
			}
			require.NoError(t, err)
		}
		require.NoError(t, w.check())
	})
}
