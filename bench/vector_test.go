package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// TestVectors: the windows can be of vectors, some elements of which are empty where a message is short, and
// every byte is checked.
func TestVectors(t *testing.T) {
	r := launch(t, group{2, vectors})
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, 3*17, strings.Count(r.Out, "Pass\n"), r.Out)
}

var vectors = worldBody("vectors", func(world *mpi.Comm) error {
	for _, name := range []string{"bw", "bibw", "mbw_mr"} {
		o := options(func(o *Options) {
			o.Max, o.Iterations, o.Warmup, o.Window, o.Vector, o.Validate = 65536, 3, 1, 5, 7, true
		})
		s := newSession(find(name), o, world, os.Stdout, instruments{now: mpi.Wtime, date: time.Now,
			pattern: pattern})
		if own, fatal := s.outcome(); own != nil || fatal != nil {
			return fmt.Errorf("%s: %w, %w", name, own, fatal)
		}
	}
	return nil
})

func TestVectorsThatMakeNoSense(t *testing.T) {
	for text, o := range map[string]Options{
		"bw: vectors of -1 elements: 1 to 1024 are possible":   options(func(o *Options) { o.Vector = -1 }),
		"bw: vectors of 1025 elements: 1 to 1024 are possible": options(func(o *Options) { o.Vector = 1025 }),
	} {
		require.EqualError(t, find("bw").Check(o, 2), text)
	}
	require.ErrorContains(t, find("latency").Check(options(func(o *Options) { o.Vector = 2 }), 2),
		"its messages are not vectors")
}
