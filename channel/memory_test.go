package channel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const maxSmallMemory = 16 << 10

// TestMemory_E1: whatever the size of the first slots, a channel takes no more than 16 KiB on each rank, in
// whole pages, before it grows, and after it has grown and shrunk: what it had beyond that is registered no
// more.
func TestMemory_E1(t *testing.T) {
	for slot := minSmall; slot <= maxSmall; slot++ {
		c := Config{Phases: []int{slot, 4000, 16384}}
		d := newTestPair(t, c)
		small := [2]int{d.A.Pages(), d.B.Pages()}
		require.LessOrEqual(t, small[0], maxSmallMemory, "slots of %d bytes", slot)
		require.LessOrEqual(t, small[1], maxSmallMemory, "slots of %d bytes", slot)
		require.Equal(t, 2*geometry(c.Phases, 0).region(), d.a.Stats().Registered)
		if slot%100 != 0 {
			continue
		}
		for _, n := range []int{3000, 9000} {
			d.sendThrough(t, d.a, d.b, element(1, n))
			d.sendThrough(t, d.b, d.a, element(1, n))
		}
		require.Greater(t, d.A.Pages(), 2*8*16384)
		require.Equal(t, 2, d.A.Regions(), "the old rings are gone")
		require.Equal(t, 2, d.B.Regions(), "the old rings are gone")
		for range 4 {
			require.NoError(t, d.a.ShrinkIfIdle())
			require.NoError(t, d.b.ShrinkIfIdle())
			d.driveUntilIdle(t)
		}
		require.Equal(t, small, [2]int{d.A.Pages(), d.B.Pages()})
		require.Equal(t, 2, d.A.Regions())
		require.Equal(t, 2, d.B.Regions())
		require.Equal(t, 2*geometry(c.Phases, 0).region(), d.a.Stats().Registered)
		d.sendThrough(t, d.a, d.b, element(1, 9000))
	}
}

// TestMemory_E8_OldMirrorIsFreed: the ACK ends the use of the small mirror, out of which the sender wrote, and of
// the small ring at the receiver, before the message that the large ones are for has gone. Seen to fail where
// pollReply does not release the old mirror, and where onRequest does not release the old ring.
func TestMemory_E8_OldMirrorIsFreed(t *testing.T) {
	d := newTestPair(t, Config{})
	small, large := geometry(DefaultPhases, 0).region(), geometry(DefaultPhases, 1).region()
	require.NoError(t, d.a.requestPhase(1))
	require.Equal(t, small+small+large, d.a.Stats().Registered, "the large mirror is made before the request goes")
	d.driveUntilIdle(t)
	require.Equal(t, 1, d.a.Phase())
	for _, c := range []*Channel{d.a, d.b} { // A's mirror is large, and B's ring
		require.Equal(t, small+large, c.Stats().Registered)
	}
	require.Equal(t, [2]int{2, 2}, [2]int{d.A.Regions(), d.B.Regions()})
	require.Equal(t, [2]int{paged(small) + paged(large), paged(small) + paged(large)},
		[2]int{d.A.Pages(), d.B.Pages()})
}

// paged is n bytes in whole pages.
func paged(n int) int { return (n + 4095) / 4096 * 4096 }

// TestMemory_E10_Peak: a rank has at most five regions for a connection at one time: the ring in use, the one
// that is about to take its place, and an old one after which a reply is to land; the mirror in use, and
// the one asked for.
func TestMemory_E10_Peak(t *testing.T) {
	maxRegions := 0
	for seed := range uint64(200) {
		s, err := tell(t, seed, all, faults{})
		require.NoError(t, err)
		maxRegions = max(maxRegions, s.maxRegions)
	}
	require.Equal(t, 5, maxRegions)
}

// TestAllocations_E5: in every phase a message of any size costs no allocation at either end, nor does a call
// that transfers nothing.
func TestAllocations_E5(t *testing.T) {
	d := newTestPair(t, Config{Phases: threePhases})
	head := make([]byte, 8)
	v := &Vector{}
	exchange := func(elems [][]byte) {
		for _, c := range []*Channel{d.a, d.b} {
			*v = Vector{Elems: elems}
			if _, o, err := v.TrySend(c, Eager, head, 0); err != nil || o != Done {
				t.Fatal(o, err)
			}
		}
		if err := d.Drive(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Channel{d.a, d.b} {
			if _, _, ok, err := c.Next(); err != nil || !ok {
				t.Fatal(ok, err)
			}
			c.Release()
			if _, err := c.Progress(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for phase := range threePhases {
		if phase > 0 {
			n := threePhases[phase] / 2
			d.sendThrough(t, d.a, d.b, element(1, n))
			d.sendThrough(t, d.b, d.a, element(1, n))
		}
		require.Equal(t, phase, d.a.Phase())
		for _, n := range []int{0, 8, 500, d.a.MaxElement(8)} {
			elems := [][]byte{element(1, n/2), element(2, n-n/2)}
			for range 200 { // warm the pair
				exchange(elems)
			}
			require.Zero(t, testing.AllocsPerRun(200, func() { exchange(elems) }), "phase %d, %d bytes",
				phase, n)
		}
	}
	elems := [][]byte{element(1, 1<<20)}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		*v = Vector{Elems: elems}
		if n, o, err := v.TrySend(d.a, Eager, head, 0); n != 0 || o != Oversized || err != nil {
			t.Fatal(n, o, err)
		}
	}), "what no slot takes")
	d2 := newTestPair(t, Config{})
	*v = Vector{Elems: elems[:1]}
	v.Elems[0] = element(1, 5000)
	if _, _, err := v.TrySend(d2.a, Eager, head, 0); err != nil {
		t.Fatal(err)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if n, o, err := v.TrySend(d2.a, Eager, head, 0); n != 0 || o != Waiting || err != nil {
			t.Fatal(n, o, err)
		}
		if _, err := d2.a.Progress(); err != nil {
			t.Fatal(err)
		}
	}), "while an answer is awaited")
}
