package channel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// TestCount_E12_LinesCountModulo2To32 begins a little before the counts of lines go over, in both directions,
// and exchanges twice what is left.
func TestCount_E12_LinesCountModulo2To32(t *testing.T) {
	p := newTestPair(t, Config{})
	a, b := p.a, p.b
	const left = 500
	for _, c := range []*Channel{a, b} {
		countFrom(c, ^uint32(left-1))
	}
	for a.send.sent >= 1<<31 || b.send.sent >= 1<<31 || a.send.sent < left {
		for i, c := range []*Channel{a, b} {
			n := int(a.stats.Sent) % (c.MaxBody() + 1)
			if i == 1 && n%3 > 0 { // fewer this way, so that CREDITs go as well
				continue
			}
			require.NotNil(t, c.Reserve(n))
			require.NoError(t, c.Commit(Eager, false))
		}
		require.NoError(t, p.Drive())
		for _, c := range []*Channel{a, b} {
			for {
				_, _, ok, err := c.Next()
				require.NoError(t, err)
				if !ok {
					break
				}
				c.Release()
			}
			_, err := c.Progress()
			require.NoError(t, err)
		}
		require.NoError(t, p.Drive())
	}
	require.Equal(t, a.stats.Sent, b.stats.Received)
	require.Equal(t, b.stats.Sent, a.stats.Received)
	require.Positive(t, b.stats.Credits)
	require.ErrorIs(t, a.send.onCredit(a.send.sent+1), transport.ErrProtocol)
	require.ErrorIs(t, a.send.onCredit(a.send.credited-1), transport.ErrProtocol)
}

// TestFlags_E12_AStepChangesEveryByte of a generation, whatever it was: of an old head no byte is as in a new
// one of the same length.
func TestFlags_E12_AStepChangesEveryByte(t *testing.T) {
	for _, shift := range []int{0, 8, 16, 24, 32, 40, 48, 56} {
		step := byte(uint64(wrapStep) >> shift)
		for old := range 256 {
			for carry := range byte(2) {
				require.NotEqual(t, byte(old), byte(old)+step+carry)
			}
		}
	}
	require.Equal(t, uint64(1), uint64(wrapStep)%2, "or a generation would come again too early")
}

// TestThreshold_E12_ThereIsOne in every ring of a list of phases that Check accepts: the least that is enough
// for CREDITs is not above the greatest that lets a full message go, and what a rank uses is between them.
func TestThreshold_E12_ThereIsOne(t *testing.T) {
	check := func(s shape) {
		slot := linesIn(s.slot)
		low, high := thresholds(s.lines, slot)
		if low > high || s.threshold() < low || s.threshold() > high {
			t.Fatalf("%+v: %d, from %d to %d", s, s.threshold(), low, high)
		}
	}
	for slot := 1; slot <= maxLarge+1; slot++ {
		first, only, later := []int{slot, maxLarge}, []int{slot}, []int{minSmall, slot}
		if (Config{Phases: first}).Check() == nil {
			check(geometry(first, 0))
			require.LessOrEqual(t, geometry(first, 0).region(), 8<<10)
		} else {
			require.True(t, slot < 100 || slot > 2000, "%d", slot)
		}
		if (Config{Phases: only}).Check() == nil {
			check(geometry(only, 0))
		} else {
			require.True(t, slot < 100 || slot > 200_000, "%d", slot)
		}
		if (Config{Phases: later}).Check() == nil {
			check(geometry(later, 1))
		} else {
			require.True(t, slot < 1000 || slot > 200_000, "%d", slot)
		}
	}
}
