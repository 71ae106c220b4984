package sequence

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// naive is the receiving half as one would write it with no thought of memory: a record of each number.
type naive struct {
	kinds map[uint64]Kind
	ends  map[uint64]uint8
	next  uint64
}

// told gives what is to be told now: the kinds, number by number.
func (m *naive) told() (list []uint64) {
	for {
		if _, ok := m.kinds[m.next]; !ok {
			return list
		}
		list = append(list, m.next)
		m.next++
	}
}

func (m *naive) holes() (n int) {
	last := uint64(0)
	for k := range m.kinds {
		last = max(last, k)
	}
	open := false
	for k := m.next; k <= last; k++ {
		_, here := m.kinds[k]
		if !here && !open {
			n++
		}
		open = !here
	}
	return n
}

// Numbers in any order, some twice: what is told is the same, in the same order, as with a record of each;
// the records are one for each hole and barrier and not for each message; holes merge and split and are
// counted right.
func TestInbound_H2_H3_H4_LikeARecordOfEachNumber(t *testing.T) {
	merged, split := 0, 0
	for seed := range testlength.Of[uint64](300, 75) {
		random := rand.New(rand.NewPCG(seed, 3))
		in := NewInbound[int](func() time.Duration { return 0 })
		m := &naive{kinds: map[uint64]Kind{}, ends: map[uint64]uint8{}, next: 1}
		count := uint64(1 + random.IntN(300))
		missing := []uint64{}
		for n := range count {
			missing = append(missing, n+1)
		}
		spread := 1 + random.IntN(40)
		for len(missing) > 0 {
			k := random.IntN(min(spread, len(missing)))
			n := missing[k]
			if random.IntN(10) == 0 && n > 1 {
				n = 1 + random.Uint64N(n-1) // perhaps one that has come
			}
			_, has := m.kinds[n]
			fresh, err := in.Fresh(n)
			require.NoError(t, err)
			require.Equal(t, !has, fresh, "seed %d: number %d", seed, n)
			if has {
				continue
			}
			missing = slices.DeleteFunc(missing, func(x uint64) bool { return x == n })
			m.kinds[n] = Kind(random.IntN(4))
			if random.IntN(12) == 0 {
				m.ends[n] = uint8(1 + random.IntN(3))
			}
			before := in.Stats
			in.Arrived(n, m.kinds[n], m.ends[n])
			if in.Stats.Open > before.Open {
				split++
			} else if in.Stats.Closed > before.Closed {
				merged++
			}
			told := m.told()
			for {
				r, ok := in.Deliver()
				if !ok {
					break
				}
				var want Counts
				for x := r.From; x <= r.To; x++ {
					require.Equal(t, told[0], x, "seed %d", seed)
					told = told[1:]
					want.add(m.kinds[x])
					require.True(t, x == r.To || m.ends[x] == 0,
						"seed %d: what has to happen at %d happens later", seed, x)
				}
				require.Equal(t, want, r.Counts)
				require.Equal(t, m.ends[r.To], r.End)
			}
			require.Empty(t, told)
			require.Equal(t, m.next, in.Next())
			require.Equal(t, m.holes(), in.Stats.Open, "seed %d", seed)
			barriers := 0
			for x := range m.ends {
				if x >= m.next {
					barriers++
				}
			}
			require.LessOrEqual(t, len(in.runs), m.holes()+barriers,
				"seed %d: more records than holes and barriers", seed)
			ranges := in.Ranges()
			require.Len(t, ranges, m.holes())
			for _, r := range ranges {
				require.True(t, in.Whole(r.From, r.To+1))
				require.False(t, in.Whole(r.From-1, r.To+1))
				require.False(t, in.Whole(r.From, r.To+2))
			}
			require.True(t, in.Whole(1, in.Next()))
		}
		require.Equal(t, count+1, in.Next())
		require.Zero(t, in.Stats.Open)
	}
	require.NotZero(t, merged)
	require.NotZero(t, split)
}

// The number of holes is bounded by the window, which holds the sender back; who goes beyond it is found.
func TestInbound_H4_HolesAreBounded(t *testing.T) {
	in := NewInbound[int](func() time.Duration { return 0 })
	out := NewOutbound[int]()
	for out.Room() {
		n := out.Add(1, 0)
		fresh, err := in.Fresh(n)
		require.NoError(t, err)
		require.True(t, fresh)
		if n%2 == 0 {
			in.Arrived(n, Message, 0)
		}
	}
	require.Equal(t, frame.MaxHoles, in.Stats.Open)
	require.Equal(t, uint64(frame.Window+1), out.Next(), "the sender is held back")
	_, err := in.Fresh(out.Next())
	require.ErrorIs(t, err, ErrBeyondWindow)
	require.LessOrEqual(t, cap(in.runs), frame.Window)
	require.Len(t, out.ring, frame.Window)
	for n := uint64(1); n < out.Next(); n += 2 {
		in.Arrived(n, Data, 0)
		for _, ok := in.Deliver(); ok; _, ok = in.Deliver() {
		}
	}
	require.Equal(t, out.Next(), in.Next())
	last, err := out.Ack(in.Next(), out.Next())
	require.NoError(t, err)
	require.NotNil(t, last)
	require.True(t, out.Room())
}

// A hole's time runs from its opening to its closing, for both parts of one that was split.
func TestInbound_TimesOfHoles(t *testing.T) {
	now := time.Duration(0)
	in := NewInbound[int](func() time.Duration { return now })
	now = 10
	in.Arrived(10, Data, 0) // 1 to 9 are missing
	now = 20
	in.Arrived(5, Data, 0) // 1 to 4, 6 to 9
	require.Equal(t, 2, in.Stats.Open)
	now = 30
	for n := uint64(6); n < 10; n++ {
		in.Arrived(n, Data, 0)
	}
	require.Equal(t, Holes{Open: 1, MaxOpen: 2, Closed: 1, Longest: 20, Total: 20}, in.Stats)
	now = 50
	for n := uint64(1); n < 5; n++ {
		in.Arrived(n, Data, 0)
	}
	require.Equal(t, Holes{MaxOpen: 2, Closed: 2, Longest: 40, Total: 60}, in.Stats)
}

// What is acknowledged must have been sent, whole.
func TestOutbound_AcknowledgementOfWhatWasNotSent(t *testing.T) {
	out := NewOutbound[int]()
	for range 5 {
		out.Add(1, 0)
	}
	for _, bad := range [][2]uint64{{0, 6}, {7, 6}, {5, 4}} {
		_, err := out.Ack(bad[0], bad[1])
		require.ErrorIs(t, err, ErrAck)
	}
	_, err := out.Ack(4, 4)
	require.NoError(t, err)
	require.Equal(t, uint64(4), out.First())
}

// What has arrived is not sent again, nor what another lane carries.
func TestOutbound_H5_OnlyWhatTheLaneCarriedAndDidNotArrive(t *testing.T) {
	out := NewOutbound[int]()
	for n := uint64(1); n <= 10; n++ {
		out.Add(uint16(n%2), int(n))
	}
	out.Resend(1, []frame.Range{{From: 3, To: 4}, {From: 9, To: 9}})
	require.Equal(t, []uint64{1, 5, 7}, out.again)
	out.Sent(2, 2)
	out.Resend(1, nil)
	require.Equal(t, []uint64{7}, out.again,
		"what is due already is not due twice, and what has arrived never is")
	out.Resend(2, nil)
	require.Equal(t, []uint64{1, 5, 7}, out.again)
	_, err := out.Ack(6, out.Next())
	require.NoError(t, err)
	require.Equal(t, []uint64{7}, out.again)
}
