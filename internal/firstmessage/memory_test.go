package firstmessage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
)

// everySecond returns ranks of a host that has every second rank of a job.
func everySecond(n int) (ranks []int) {
	for i := range n {
		ranks = append(ranks, 2*i)
	}
	return ranks
}

// memories returns the memory of ranks, as each of them sees it.
func memories(t *testing.T, ranks []int) (list []*Memory) {
	t.Helper()
	fd, err := New(ranks)
	require.NoError(t, err)
	defer sys.CloseShared(fd)
	for range ranks {
		m, err := Attach(fd)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		list = append(list, m)
	}
	return list
}

func wakeOf(rank int) (w [WakeSize]byte) {
	copy(w[:], fmt.Sprint("wake ", rank))
	return w
}

// taken returns the messages that a rank takes, by sender.
func taken(m *Memory) map[uint32]string {
	got := map[uint32]string{}
	m.Take(func(from uint32, message []byte) { got[from] += string(message) })
	return got
}

func TestMemory_CarriesOneMessageOfEachToEach(t *testing.T) {
	ranks := everySecond(MinRanks)
	m := memories(t, ranks)
	require.False(t, m[0].Send(2, []byte("early")), "this rank is not open")
	require.False(t, m[1].Open(3, wakeOf(3)), "rank 3 is not of this host")
	require.True(t, m[0].Open(0, wakeOf(0)))
	require.False(t, m[0].Send(2, []byte("early")), "rank 2 is not open")
	for i, rank := range ranks[1:] {
		require.True(t, m[i+1].Open(uint32(rank), wakeOf(rank)))
	}
	require.False(t, m[0].Send(0, nil), "to itself")
	require.False(t, m[0].Send(1, nil), "to a rank of another host")
	require.False(t, m[0].Send(2, make([]byte, MaxMessage+1)), "too long")

	require.False(t, m[1].Full())
	require.Empty(t, taken(m[1]))
	longest := bytes.Repeat([]byte{'x'}, MaxMessage)
	require.True(t, m[0].Send(2, longest))
	require.False(t, m[0].Send(2, []byte("second")))
	require.True(t, m[1].Full())
	require.Equal(t, map[uint32]string{0: string(longest)}, taken(m[1]))
	require.False(t, m[0].Send(2, []byte("second")), "a cell is used once")
	for i, rank := range ranks {
		if rank != 0 && rank != 2 {
			require.True(t, m[i].Send(2, fmt.Append(nil, "from ", rank)))
		}
	}
	got := taken(m[1])
	require.Len(t, got, len(ranks)-2)
	for from, text := range got {
		require.Equal(t, fmt.Sprint("from ", from), text)
	}
	require.False(t, m[1].Full())
	require.Zero(t, m[1].left.Load())
}

// Who leaves a message wakes a rank that sleeps, and nobody else does.
func TestMemory_OneWakesASleeper(t *testing.T) {
	m := memories(t, everySecond(MinRanks))
	for i := range m {
		m[i].Open(uint32(2*i), wakeOf(2*i))
	}
	_, must := m[0].MustWake(2)
	require.False(t, must, "it is awake")
	m[1].Sleep()
	wake, must := m[0].MustWake(2)
	require.True(t, must)
	require.Equal(t, wakeOf(2), wake)
	_, must = m[2].MustWake(2)
	require.False(t, must, "it has been woken")
	m[1].Sleep()
	m[1].Awake()
	_, must = m[2].MustWake(2)
	require.False(t, must)
}

// All ranks leave all others messages, while all take them, and sleep.
func TestMemory_AllAtOnce(t *testing.T) {
	n := MinRanks + 3
	m := memories(t, everySecond(n))
	for i := range m {
		require.True(t, m[i].Open(uint32(2*i), wakeOf(2*i)))
	}
	wakes := make([]chan struct{}, n)
	for i := range wakes {
		wakes[i] = make(chan struct{}, n)
	}
	var all sync.WaitGroup
	for i := range m {
		all.Go(func() {
			for _, j := range rand.Perm(n) {
				if j == i {
					continue
				}
				if !m[i].Send(uint32(2*j), fmt.Append(nil, i, " to ", j)) {
					t.Errorf("%d cannot leave %d a message", i, j)
				}
				if _, must := m[i].MustWake(uint32(2 * j)); must {
					wakes[j] <- struct{}{}
				}
			}
		})
		all.Go(func() {
			got := 0
			for got < n-1 {
				if m[i].Take(func(from uint32, message []byte) {
					got++
					if want := fmt.Sprint(from/2, " to ", i); string(message) != want {
						t.Errorf("%q, not %q", message, want)
					}
				}) {
					continue
				}
				m[i].Sleep()
				if !m[i].Full() {
					<-wakes[i]
				}
				m[i].Awake()
			}
		})
	}
	all.Wait()
}

func TestNew_RefusesTooFewAndTooMany(t *testing.T) {
	for _, n := range []int{0, MinRanks - 1, MaxRanks + 1} {
		_, err := New(everySecond(n))
		require.ErrorContains(t, err, fmt.Sprintf("of %d ranks", n))
	}
}

// A rank refuses memory that is not what the launcher makes.
func TestAttach_RefusesOtherMemory(t *testing.T) {
	for bytes, text := range map[int]string{4096: "of 4096 bytes", size(MinRanks): "of version 0 and 0 ranks"} {
		fd, err := sys.SharedMemory(int64(bytes))
		require.NoError(t, err)
		defer sys.CloseShared(fd)
		_, err = Attach(fd)
		require.ErrorContains(t, err, text)
	}
	reader, writer, err := sys.Pipe()
	require.NoError(t, err)
	defer sys.CloseShared(reader)
	defer sys.CloseShared(writer)
	_, err = Attach(reader)
	require.ErrorContains(t, err, "memory for first messages: ")
}

// A length that no rank has written is not believed, and sizes tell the number of ranks.
func TestMemory_ChecksWhatIsThere(t *testing.T) {
	m := memories(t, everySecond(MinRanks))
	m[0].Open(0, wakeOf(0))
	c := m[1].cell(0, 1)
	c.length, c.state = MaxMessage+1, cellFull
	require.Empty(t, taken(m[0]))
	require.EqualValues(t, cellTaken, c.state)
	var sizes []int64
	for n := MinRanks; n <= MaxRanks; n++ {
		sizes = append(sizes, int64(size(n)))
		require.Equal(t, n, ranksOf(sizes[len(sizes)-1]))
	}
	require.True(t, slices.IsSorted(sizes))
	require.Zero(t, ranksOf(sizes[0]+1))
}
