package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// fields has the ranks write the fields of testPlates to files, in place of the example.
var fields = launchertest.Body("fields", func() error { return mpi.Run(context.Background(), writeFields) })

// testPlates have blocks of many shapes on four and six ranks: with an inside, without one, one cell wide,
// one cell high, one cell.
var testPlates = []problem{
	{Width: 3, Height: 2, Steps: 7}, {Width: 2, Height: 3, Steps: 7}, {Width: 6, Height: 2, Steps: 7},
	{Width: 12, Height: 1, Steps: 9},
	{Width: 1, Height: 12, Steps: 9}, {Width: 17, Height: 13, Steps: 45}, {Width: 40, Height: 7, Steps: 45},
	{Width: 9, Height: 31, Steps: 0},
}

// roughness is a start in which no two cells are alike, so that no mistake in the exchange is without effect.
func roughness(x, y int) float64 { return math.Abs(math.Sin(float64(1 + x*x + 37*y*y*y))) }

func fileOf(p problem) string { return fmt.Sprintf("%dx%d", p.Width, p.Height) }

func writeFields(_ context.Context, world *mpi.Comm) error {
	for _, p := range testPlates {
		var err error
		if p.Columns, p.Rows, err = split(world.Size(), p.Width, p.Height); err != nil {
			return err
		}
		p.Diffusivity, p.Tolerance = 0.2, -1
		block := newPlate(p, p.area(world.Rank()), roughness)
		done, err := spread(world, p, block, nil)
		if err != nil {
			return err
		}
		if done.steps != p.Steps {
			return fmt.Errorf("%d steps instead of %d", done.steps, p.Steps)
		}
		field, err := gather(world, p, block)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			data, err := binary.Append(nil, binary.LittleEndian, field)
			if err != nil {
				return err
			}
			if err := os.WriteFile(fileOf(p), data, 0o666); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestAnyNumberOfRanksComputesTheSameBits(t *testing.T) {
	written := map[int]map[string][]byte{}
	for _, ranks := range []int{1, 4, 6} {
		dir := t.TempDir()
		app := launchertest.Ranks(ranks, fields)
		app.Dir = dir
		r := launchertest.Run(t, app)
		require.NoError(t, r.Failure, r.Err)
		written[ranks] = map[string][]byte{}
		for _, p := range testPlates {
			data, err := os.ReadFile(filepath.Join(dir, fileOf(p)))
			require.NoError(t, err)
			require.Len(t, data, 8*p.Width*p.Height)
			written[ranks][fileOf(p)] = data
		}
	}
	for _, p := range testPlates {
		alone := written[1][fileOf(p)]
		require.Equal(t, alone, written[4][fileOf(p)], fileOf(p))
		require.Equal(t, alone, written[6][fileOf(p)], fileOf(p))

		p.Diffusivity = 0.2
		require.Equal(t, alone, bytesOf(t, compute(p, roughness, p.Steps)),
			"what rank 0 compares with differs")
		for i, t1 := range byTheBook(p) {
			t2 := math.Float64frombits(binary.LittleEndian.Uint64(alone[8*i:]))
			require.InDelta(t, t1, t2, 1e-13, "%s, cell %d", fileOf(p), i)
		}
	}
}

func bytesOf(t *testing.T, field []float64) []byte {
	data, err := binary.Append(nil, binary.LittleEndian, field)
	require.NoError(t, err)
	return data
}

// byTheBook computes the plate cell by cell from the definition, and shares nothing with the example.
func byTheBook(p problem) []float64 {
	start := make([]float64, p.Width*p.Height)
	for i := range start {
		start[i] = roughness(i%p.Width, i/p.Width)
	}
	now := append([]float64(nil), start...)
	for range p.Steps {
		next := make([]float64, len(now))
		for i := range next {
			x, y := i%p.Width, i/p.Width
			flow := 0.0
			for _, d := range [][2]int{{-1, 0}, {1, 0}, {0, -1}, {0, 1}} {
				beside := start[i] // beyond the plate it stays as warm as the plate's edge was
				if x2, y2 := x+d[0], y+d[1]; x2 >= 0 && x2 < p.Width && y2 >= 0 && y2 < p.Height {
					beside = now[y2*p.Width+x2]
				}
				flow += beside - now[i]
			}
			next[i] = now[i] + p.Diffusivity*flow
		}
		now = next
	}
	return now
}
