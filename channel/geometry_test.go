package channel_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
)

// dataReserve is the lines that data leaves free, half of them to CREDIT alone.
const dataReserve = 12

// works reports whether a threshold is right for a ring, as docs/internals/spec/channel.md wants it: five of them are
// more than the ring, so that CREDITs never fill the lines that are theirs; and when less than one is
// unadvertised the greatest message finds room wherever it begins.
func works(threshold, lines, slot int) bool {
	for pos := range lines {
		total := slot
		if rest := lines - pos; rest < slot {
			total += rest
		}
		if total+dataReserve > lines-(threshold-1) {
			return false
		}
	}
	return 5*threshold > lines
}

// lines gives the lines of the ring of the last of these phases, and of its slots, as docs/internals/spec/channel.md
// has them.
func lines(phases []int) (ring, slot int) {
	slot = (phases[len(phases)-1] + 63) / 64
	ring = max(8*slot, 64)
	if len(phases) == 1 {
		ring = min(ring, 126)
	}
	return ring, slot
}

// shapes calls f with a channel in a ring of each number of lines that there can be in the first phase, with
// the least and the greatest slots of them, and in some larger ones.
func shapes(t *testing.T, f func(l *link, ring, slot int)) {
	all := [][]int{{100}, {100, 1000}, {2000, 2001}, {640, 16384}, {100, 1024, 5000, 65537}}
	for slot := 128; slot <= 2000; slot += 64 {
		all = append(all, []int{slot}, []int{slot + 1})
	}
	for _, phases := range append(all, []int{2000}) {
		l := open(t, channel.Config{Phases: phases})
		if len(phases) > 1 {
			l.enlarge(t, phases[len(phases)-1])
		}
		ring, slot := lines(phases)
		f(l, ring, slot)
	}
}

// enlarge takes both directions to the phase with slots of so many bytes.
func (l *link) enlarge(t *testing.T, slot int) {
	for _, c := range []*channel.Channel{l.a, l.b} {
		v := channel.Vector{Elems: [][]byte{make([]byte, slot-24)}}
		o, err := c.GrowFor(&v, 0)
		require.NoError(t, err)
		require.Equal(t, channel.Waiting, o)
		for range 2 { // the request, and the reply
			l.drive(t)
			require.Empty(t, take(t, l.a))
			require.Empty(t, take(t, l.b))
		}
		ready, err := c.ResizeDone()
		require.NoError(t, err)
		require.True(t, ready)
		require.Equal(t, slot-24, c.MaxBody())
	}
}

// TestGeometry_E12_TheThresholdInUseIsRight counts the lines that a rank consumes until it tells, for every
// size of the first slots and some of the larger ones.
func TestGeometry_E12_TheThresholdInUseIsRight(t *testing.T) {
	right := func(l *link, ring, slot int) {
		threshold := 0
		for ; l.b.Stats().Credits == 0; threshold++ {
			require.True(t, put(t, l.a, channel.Eager, nil, false))
			l.drive(t)
			require.Len(t, take(t, l.b), 1)
			progress(t, l.b)
		}
		require.True(t, works(threshold, ring, slot), "%d lines of %d, with slots of %d", threshold, ring,
			slot)
	}
	shapes(t, right)
	for size := 100; size <= 2000; size++ {
		ring, slot := lines([]int{size})
		right(open(t, channel.Config{Phases: []int{size}}), ring, slot)
	}
}

// TestGeometry_E12_DataNeverStarvesControlOrCredit fills both rings with data, whatever the shape and
// wherever they stand, while nobody reads. Control messages still go, and when one side reads it can tell; at
// last there is room for the greatest message.
func TestGeometry_E12_DataNeverStarvesControlOrCredit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shapes(t, func(l *link, ring, slot int) {
		for range 2 {
			for i := range rng.IntN(ring) { // so that the rings stand anywhere, each on its own
				from, to := l.a, l.b
				if i%3 == 0 {
					from, to = to, from
				}
				require.True(t, put(t, from, channel.Eager, nil, false))
				l.drive(t)
				take(t, to)
				progress(t, to)
				l.drive(t)
				take(t, from)
			}
			var sent [2][][]byte
			for i, c := range []*channel.Channel{l.a, l.b} {
				for n := c.MaxBody(); n >= 0; { // what data can take, to the last line
					body := bytes.Repeat([]byte{byte(len(sent[i]))}, rng.IntN(n+1))
					if put(t, c, channel.Eager, body, false) {
						sent[i] = append(sent[i], body)
					} else {
						n = len(body) - 1
					}
				}
				require.Nil(t, c.Reserve(0))
				for range dataReserve / 2 {
					body := []byte{byte(len(sent[i]))}
					require.True(t, put(t, c, channel.RTS, body, false),
						"%d lines: a control message finds no room", ring)
					sent[i] = append(sent[i], body)
				}
				l.drive(t)
			}
			require.Equal(t, sent[0], take(t, l.b), "%d lines", ring)
			credits := l.b.Stats().Credits
			progress(t, l.b)
			require.Equal(t, credits+1, l.b.Stats().Credits,
				"%d lines: a full ring was read and nothing told", ring)
			l.drive(t)
			require.Equal(t, sent[1], take(t, l.a), "%d lines", ring)
			require.True(t, put(t, l.a, channel.Eager, letters(l.a.MaxBody()), false),
				"%d lines: a full message finds no room", ring)
			progress(t, l.a)
			l.drive(t)
			require.Len(t, take(t, l.b), 1)
			progress(t, l.b)
			l.drive(t)
			require.Empty(t, take(t, l.a))
		}
	})
}

// TestGeometry_E12_ACreditAlwaysFindsRoom has B, whose own ring is full of what A does not read, read all
// that A can send, line by line. Five CREDITs are the most that this takes, and none of them may have to
// wait.
func TestGeometry_E12_ACreditAlwaysFindsRoom(t *testing.T) {
	shapes(t, func(l *link, ring, slot int) {
		for _, k := range []channel.Kind{channel.Eager, channel.RTS} {
			for put(t, l.b, k, nil, false) {
				l.drive(t)
			}
		}
		for put(t, l.a, channel.RTS, nil, false) {
			l.drive(t)
			require.Len(t, take(t, l.b), 1)
			progress(t, l.b)
		}
		require.LessOrEqual(t, l.b.Stats().Credits, uint64(5), "%d lines", ring)
		require.Positive(t, l.b.Stats().Credits, "%d lines", ring)
	})
}

// TestGeometry_E12_ACreditNeverWaits lets both ranks send whatever there is room for, data and control, and
// read one message now and then. Each tells at once when it has not advertised: there is room in every order
// of these.
func TestGeometry_E12_ACreditNeverWaits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var credits uint64
	shapes(t, func(l *link, ring, slot int) {
		ends := [2]*channel.Channel{l.a, l.b}
		eager := rng.IntN(2) // this one reads more than it sends
		for range 500 {
			i := rng.IntN(2)
			c := ends[i]
			if i == eager || rng.IntN(3) == 0 {
				_, _, _, err := c.Next()
				require.NoError(t, err)
				c.Release()
				progress(t, c)
			} else {
				kind, n := channel.RTS, 0
				if rng.IntN(2) == 0 {
					kind, n = channel.Eager, rng.IntN(c.MaxBody()+1)
				}
				put(t, c, kind, letters(n), false)
			}
			l.drive(t)
		}
		credits += l.a.Stats().Credits + l.b.Stats().Credits
	})
	require.Greater(t, credits, uint64(1000))
}
