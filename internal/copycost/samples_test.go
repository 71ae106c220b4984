package copycost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// send sends messages of n bytes on a processor with these costs, and returns the last awaited length that
// followed from the samples.
func send(known Costs, in *Samples, e *Exploration, processor Costs, n, messages int) int {
	awaited := known.Awaited()
	for range messages {
		if n > awaited && !e.Next() || !in.Due() {
			continue
		}
		t := processor.MappedKiB / 2 * time.Duration(n) / 1024
		if in.Note(int64(t), n) {
			known.MappedKiB = 2 * time.Duration(in.KiB())
			awaited = known.Awaited()
		}
	}
	return awaited
}

// TestForeignNumbers: whatever was assumed of memory, a rank soon knows better, and follows changes both ways.
func TestForeignNumbers(t *testing.T) {
	for _, assumed := range []time.Duration{1, xeon207.MappedKiB, epycTogether.MappedKiB, time.Second} {
		var in Samples
		var e Exploration
		together, apart := epycTogether, epycTogether
		apart.MappedKiB = 204
		known := together
		known.MappedKiB = assumed
		require.Equal(t, together.Awaited(), send(known, &in, &e, together, 16<<10, 10))
		known.MappedKiB = 2 * time.Duration(in.KiB())
		require.Equal(t, apart.Awaited(), send(known, &in, &e, apart, 16<<10, 2*window*interval))
		known.MappedKiB = 2 * time.Duration(in.KiB())
		require.Equal(t, together.Awaited(), send(known, &in, &e, together, 16<<10, window*8*interval*interval))
	}
}

// TestSamples_TheLeastOfAWindowCounts: neither what interrupts copies, nor an earlier window.
func TestSamples_TheLeastOfAWindowCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Samples
		for range rapid.IntRange(1, 5).Draw(t, "windows") {
			least := int64(1 << 40)
			for i := range window {
				k := rapid.Int64Range(1, 1000).Draw(t, "each")
				least = min(least, k)
				before := s.KiB()
				require.Equal(t, i == window-1, s.Note(8*k, 8<<10))
				if i < window-1 {
					require.Equal(t, before, s.KiB())
				}
			}
			require.Equal(t, least, s.KiB())
		}
		require.False(t, s.Note(0, 8<<10), "a processor without a clock")
		require.False(t, s.Note(1, MinSample-1))
	})
}

// TestSamples_AreFew once there are some.
func TestSamples_AreFew(t *testing.T) {
	var s Samples
	for s.KiB() == 0 {
		require.True(t, s.Due())
		s.Note(100, 8<<10)
	}
	due := 0
	for range 100 * interval {
		if s.Due() {
			due++
		}
	}
	require.Equal(t, 100, due)
}
