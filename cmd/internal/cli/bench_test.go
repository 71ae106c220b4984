package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/bench"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]sizeRange{
		"8":       {0, 8, true},
		"1:1":     {1, 1, true},
		"4k:1M":   {4 << 10, 1 << 20, true},
		"64K":     {0, 64 << 10, true},
		"1:2047M": {1, 2047 << 20, true},
	} {
		var got sizeRange
		require.NoError(t, got.Set(text), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", ":", "1:", ":1", "8:4", "0", "-1", "+1", "1:2:3", "1.5", "0x10", "K",
		"2048M", "1_000"} {
		require.Error(t, new(sizeRange).Set(text), "%q", text)
	}
}

// The exit status tells a wrong command line from wrong bytes.
func TestExitStatusOfARank(t *testing.T) {
	require.NoError(t, tell(nil))
	require.Equal(t, exitStatus(1), tell(fmt.Errorf("rank 1: %w", bench.ErrInvalid)))
	require.Equal(t, usage, tell(errors.Join(nil, &bench.OptionError{What: "bw runs on 2 ranks"})))
}

func FuzzSizes(f *testing.F) {
	for _, text := range []string{"8", "1:4M", "8:4", ":", "-1:4", "2048M", "99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var r sizeRange
		if err := r.Set(text); err != nil {
			require.False(t, r.given, text)
			return
		}
		require.True(t, 0 <= r.low && r.low <= r.high && 0 < r.high && r.high < 1<<31, "%q: %+v", text, r)
	})
}
