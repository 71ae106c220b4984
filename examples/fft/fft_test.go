package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestTheSolutionIsTheKnownOne(t *testing.T) {
	for _, ranks := range exampletest.Ranks() {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			stdout, stderr, err := exampletest.Launch(t, ranks, t.TempDir(), "-size", "64")
			require.NoError(t, err, stderr)
			var rows, columns, by int
			var wrong float64
			var took string
			_, err = fmt.Sscanf(stdout, "Poisson's equation on %d × %d points solved by %d ranks in %s wrong by at most %g\n",
				&rows, &columns, &by, &took, &wrong)
			require.NoError(t, err, stdout)
			require.Equal(t, []int{64, 64, ranks}, []int{rows, columns, by})
			require.Less(t, wrong, 1e-13)
		})
	}
}

func TestOneRowARank(t *testing.T) {
	_, stderr, err := exampletest.Launch(t, 16, t.TempDir(), "-size", "16", "-repeat", "3")
	require.NoError(t, err, stderr)
}

// dft is the transform by its definition.
func dft(x []complex128) []complex128 {
	y := make([]complex128, len(x))
	for k := range y {
		for j, v := range x {
			y[k] += v * cmplx.Rect(1, -2*math.Pi*float64(j*k%len(x))/float64(len(x)))
		}
	}
	return y
}

func random(n int) []complex128 {
	r := rand.New(rand.NewPCG(1, 1))
	x := make([]complex128, n)
	for i := range x {
		x[i] = complex(r.NormFloat64(), r.NormFloat64())
	}
	return x
}

func near(a, b []complex128) error {
	for i := range a {
		if !(cmplx.Abs(a[i]-b[i]) < 1e-10) {
			return fmt.Errorf("number %d is %v instead of %v", i, a[i], b[i])
		}
	}
	return nil
}

func TestTheTransformIsItsDefinition(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8, 128} {
		x := random(n)
		transformer, y := newTransformer(n), append([]complex128(nil), x...)
		transformer.forward(y)
		require.NoError(t, near(y, dft(x)), "%d", n)
		transformer.backward(y)
		require.NoError(t, near(y, x), "%d", n)
	}
}

// Each rank compares its part of the transform of a random square with the definition.
var squareBody = launchertest.Body("square", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		const n = 16
		g, all := newGrid(world, n), random(n*n)
		mine := all[g.first*n:][:g.rows*n]
		copy(g.values, mine)
		if err := g.forward(); err != nil {
			return err
		}
		half := make([]complex128, n*n) // rows transformed, and then transposed
		for y := range n {
			for x, v := range dft(all[y*n:][:n]) {
				half[x*n+y] = v
			}
		}
		for y := range g.rows {
			if err := near(g.row(y), dft(half[(g.first+y)*n:][:n])); err != nil {
				return fmt.Errorf("rank %d: row %d: %w", world.Rank(), y, err)
			}
		}
		if err := g.backward(); err != nil {
			return err
		}
		return errors.Join(near(g.values, mine), mpi.Barrier(world))
	})
})

func TestTheTransformOfASquareIsItsDefinition(t *testing.T) {
	for _, ranks := range []int{1, 4} {
		r := launchertest.Run(t, launchertest.Ranks(ranks, squareBody))
		require.NoError(t, r.Failure, r.Err)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-n 4":        "fft: flag provided but not defined: -n",
		"16":          `fft: "16" is not a flag; -h lists them`,
		"-size 100":   "fft: -size 100: must be a power of two from 16 to 32768",
		"-size 8":     "fft: -size 8: must be",
		"-size -16":   "fft: -size -16: must be",
		"-size 65536": "fft: -size 65536: must be",
		"-repeat 0":   "fft: -repeat 0: must be 1 or more",
	})
}

// Ranks beyond a power of two stay idle, and so do those beyond the rows.
func TestIdleRanks(t *testing.T) {
	for ranks, sharing := range map[int]int{3: 2, 17: 16} {
		stdout, stderr, err := exampletest.Launch(t, ranks, t.TempDir(), "-size", "16")
		require.NoError(t, err, stderr)
		require.Contains(t, stdout, fmt.Sprintf("solved by %d ranks in ", sharing))
	}
}

func TestHelp(t *testing.T) { exampletest.Helps(t, "-size int") }
