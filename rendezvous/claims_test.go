package rendezvous

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestClaims_EveryPageIsOfOneEnd: in each of many turns, whatever the two ends do at the same time, every page
// is claimed by one of them, and the sender claims none by what another turn says.
func TestClaims_EveryPageIsOfOneEnd(t *testing.T) {
	const turns = 3000
	c := claimsIn(aligned(claimsSize))
	claimed := make([]atomic.Uint32, pagesOf(claimsPart))
	stop, bySender := make(chan struct{}), 0
	ended := make(chan error)
	go func() {
		defer close(ended)
		for {
			o := c.look()
			if o.front+o.back >= pagesOf(o.length) {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
					continue
				}
			}
			at, n := c.claimBack(&o)
			if n == 0 {
				continue
			}
			if o.id != o.number || o.key != o.number+1 || o.at != o.number+2 {
				claimed[0].Add(100) // of several turns
			}
			first := at - o.at
			if first%claimsPage != 0 || first+n > o.length {
				claimed[0].Add(1000)
			}
			for k := first / claimsPage; k < pagesOf(first+n); k++ {
				claimed[k].Add(1)
			}
			bySender++
			c.done(&o)
		}
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	for number := uint32(1); number <= turns; number++ {
		length := claimsMin + rng.Uint64N(uint64(1)<<(16+rng.Uint64N(7))-1)
		length = min(length, claimsPart)
		pages, next := pagesOf(length), uint64(0)
		for k := c.begin(number, uint64(number), uint64(number)+1, uint64(number)+2, length); k > 0; {
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
	require.NotZero(t, bySender, "the sender has claimed nothing")
}

// TestClaims_OfASenderThatCannot are those of the receiver.
func TestClaims_OfASenderThatCannot(t *testing.T) {
	c := claimsIn(aligned(claimsSize))
	first := c.begin(7, 1, 2, 0, claimsMin)
	o := c.look()
	at, n := c.claimBack(&o)
	require.Equal(t, uint64(claimsMin), at+n)
	left, sane := c.claimFront(7, first, pagesOf(claimsMin), false)
	require.Zero(t, left)
	require.True(t, sane)
	for _, never := range []bool{false, true} {
		c.refuse(&o, never)
		h := sharedCopies{claims: c, turn: 7}
		require.False(t, h.awaitCopied(pagesOf(claimsMin)-first))
		require.Equal(t, never, h.broken)
	}
	copied, refused, never := c.copiedIn(8)
	require.Zero(t, copied, "of the turn before")
	require.False(t, refused || never)
}

// TestClaims_OfASenderThatLies are noticed, and never more than there are.
func TestClaims_OfASenderThatLies(t *testing.T) {
	pages := pagesOf(claimsPart)
	for what, lie := range map[string]turn{
		"another turn":               {6, 64, 0},
		"fewer of the receiver's":    {7, 63, 0},
		"more of the receiver's":     {7, 65, 10},
		"more than there are":        {7, 64, pages - 63},
		"as many as a word can hold": {7, 64, 0xffff},
	} {
		c := claimsIn(aligned(claimsSize))
		require.Equal(t, uint64(64), c.begin(7, 1, 2, 0, claimsPart))
		c.state = lie.word()
		n, sane := c.claimFront(7, 64, pages, true)
		require.Zero(t, n, what)
		require.False(t, sane, what)
	}
	c := claimsIn(aligned(claimsSize))
	h := sharedCopies{claims: c, turn: 7}
	c.copied = 7<<32 | 11
	require.False(t, h.awaitCopied(10), "it has copied more than it has claimed")
	require.True(t, h.broken)
	c.copied = 7<<32 | 9
	require.False(t, h.awaitCopied(10), "it does not come to it")
}

// TestClaims_OfAPeerThatLies make no claim beyond a part.
func TestClaims_OfAPeerThatLies(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		c := claimsIn(aligned(claimsSize))
		c.state, c.length = rng.Uint64()>>rng.IntN(64), rng.Uint64()>>rng.IntN(64)
		o := c.look()
		if o.length == 0 || o.length > claimsPart || o.front+o.back >= pagesOf(o.length) {
			continue
		}
		at, n := c.claimBack(&o)
		require.LessOrEqual(t, at+n, o.length)
		require.NotZero(t, n)
	}
	require.Nil(t, claimsIn(aligned(claimsSize)[:claimsSize-1]))
	require.Nil(t, claimsIn(aligned(claimsSize + 8)[4:]))
}

// aligned is memory that begins at a word: that of make([]byte, n) need not, where it is on the stack.
func aligned(n int) []byte {
	words := make([]uint64, n/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
