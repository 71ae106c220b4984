package sharedcopy

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
)

// TestClaims_EveryPageIsOfOneEnd: in each of many turns, whatever the two ends do at the same time, every page
// is claimed by one of them, and the helper claims none by what another turn says.
func TestClaims_EveryPageIsOfOneEnd(t *testing.T) {
	turns := testlength.Of[uint32](3000, 600)
	c := In(aligned(Size))
	claimed := make([]atomic.Uint32, pagesOf(MaxPart))
	stop := make(chan struct{})
	var byHelper atomic.Uint32
	ended := make(chan error)
	go func() {
		defer close(ended)
		for {
			o := c.look()
			if !o.open() {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
					continue
				}
			}
			first, n := c.claimBack(&o)
			if n == 0 {
				continue
			}
			if o.ID != o.number || o.Key != o.number+1 || o.At != o.number+2 {
				claimed[0].Add(100) // of several turns
			}
			if first%Page != 0 || first+n > o.Length {
				claimed[0].Add(1000)
			}
			for k := first / Page; k < pagesOf(first+n); k++ {
				claimed[k].Add(1)
			}
			byHelper.Add(1)
			c.done(&o)
		}
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	late := time.Now().Add(2 * time.Minute) // on a busy machine the helper may get no processor for long
	for number := uint32(1); number <= turns || byHelper.Load() == 0 && time.Now().Before(late); number++ {
		length := Min + rng.Uint64N(uint64(1)<<(16+rng.Uint64N(7))-1)
		length = min(length, MaxPart)
		pages, next := pagesOf(length), uint64(0)
		for k := c.begin(number, &Part{uint64(number), uint64(number) + 1, uint64(number) + 2, length}); k > 0; {
			for i := range k {
				claimed[next+i].Add(1)
			}
			next += k
			var sane bool
			k, sane = c.claimFront(number, next, pages, rng.IntN(16) == 0)
			require.True(t, sane)
		}
		for sent := pages - next; sent > 0; {
			if copied, refused, _ := c.copiedIn(number); copied == sent {
				require.False(t, refused)
				break
			}
			runtime.Gosched()
		}
		for i := range claimed {
			want := uint32(0)
			if uint64(i) < pages {
				want = 1
			}
			require.Equal(t, want, claimed[i].Load(), "page %d of %d in turn %d", i, pages, number)
			claimed[i].Store(0)
		}
	}
	close(stop)
	<-ended
	require.NotZero(t, byHelper.Load(), "the helper has claimed nothing")
}

// TestClaims_OfAHelperThatCannot are those of the leader.
func TestClaims_OfAHelperThatCannot(t *testing.T) {
	c := In(aligned(Size))
	first := c.begin(7, &Part{1, 2, 0, Min})
	o := c.look()
	at, n := c.claimBack(&o)
	require.Equal(t, uint64(Min), at+n)
	left, sane := c.claimFront(7, first, pagesOf(Min), false)
	require.Zero(t, left)
	require.True(t, sane)
	for _, never := range []bool{false, true} {
		c.refuse(&o, never)
		h := Leader{Claims: c, turn: 7}
		require.False(t, h.awaitCopied(pagesOf(Min)-first, givesUp))
		require.Equal(t, never, h.Broken)
	}
	copied, refused, never := c.copiedIn(8)
	require.Zero(t, copied, "of the turn before")
	require.False(t, refused || never)
}

// TestClaims_OfAHelperThatLies are noticed, and never more than there are.
func TestClaims_OfAHelperThatLies(t *testing.T) {
	pages := pagesOf(MaxPart)
	for what, lie := range map[string]turn{
		"another turn":               {6, 64, 0},
		"fewer of the leader's":      {7, 63, 0},
		"more of the leader's":       {7, 65, 10},
		"more than there are":        {7, 64, pages - 63},
		"as many as a word can hold": {7, 64, 0xffff},
	} {
		c := In(aligned(Size))
		require.Equal(t, uint64(64), c.begin(7, &Part{1, 2, 0, MaxPart}))
		c.state = lie.word()
		n, sane := c.claimFront(7, 64, pages, true)
		require.Zero(t, n, what)
		require.False(t, sane, what)
	}
	c := In(aligned(Size))
	h := Leader{Claims: c, turn: 7}
	c.copied = 7<<32 | 11
	require.False(t, h.awaitCopied(10, givesUp), "it has copied more than it has claimed")
	require.True(t, h.Broken)
	c.copied = 7<<32 | 9
	require.False(t, h.awaitCopied(10, givesUp), "it does not come to it")
}

// TestClaims_OfAPeerThatLies make no claim beyond a part.
func TestClaims_OfAPeerThatLies(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		c := In(aligned(Size))
		c.state, c.length = rng.Uint64()>>rng.IntN(64), rng.Uint64()>>rng.IntN(64)
		o := c.look()
		if !o.open() {
			continue
		}
		at, n := c.claimBack(&o)
		require.LessOrEqual(t, at+n, o.Length)
		require.NotZero(t, n)
	}
	require.Nil(t, In(aligned(Size)[:Size-1]))
	require.Nil(t, In(aligned(Size + 8)[4:]))
}

// givesUp has a leader not wait for a helper that is late.
func givesUp() bool { return false }

// aligned is memory that begins at a word: that of make([]byte, n) need not, where it is on the stack.
func aligned(n int) []byte {
	words := make([]uint64, n/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
