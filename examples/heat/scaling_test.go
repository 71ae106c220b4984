package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// plotVariable names a file for the plot of TestScaling, which then goes to 1,024 ranks.
const plotVariable = "HEAT_SCALING"

// perCell is how long a rank computes for a cell and a step.
const perCell = time.Nanosecond

// step is a step of spread, with sleeps in place of the sweeps, for so long as these take.
func step(h *halo) error {
	inside := max(h.block.width-2, 0) * max(h.block.height-2, 0)
	if err := h.begin(); err != nil {
		return err
	}
	time.Sleep(time.Duration(inside) * perCell)
	if err := h.end(); err != nil {
		return err
	}
	time.Sleep(time.Duration(h.block.width*h.block.height-inside) * perCell)
	return nil
}

// stepTime predicts how long a step on a plate takes on some ranks of a cluster.
func stepTime(t *testing.T, ranks, width, height int) time.Duration {
	p := problem{Width: width, Height: height}
	var err error
	p.Columns, p.Rows, err = split(ranks, width, height)
	require.NoError(t, err)
	res := mpitest.Measure(t, ranks, func(_ context.Context, world *mpi.Comm) error {
		h := newHalo(world, p, newPlate(p, p.area(world.Rank()), func(int, int) float64 { return 0 }))
		for range residualEvery {
			if err := step(h); err != nil {
				return err
			}
		}
		return mpi.Allreduce(world, mpi.InPlace[float64](), []float64{0}, mpi.Max[float64]())
	})
	return res.Time / residualEvery
}

// The more ranks share a plate, the shorter a step is, but the messages' time stays.
func TestScaling(t *testing.T) {
	width, height, most := 512, 512, 16
	file := os.Getenv(plotVariable)
	if file != "" {
		width, height, most = 2048, 2048, 1024
	}
	var alone time.Duration
	var speedups, ideal plotter.XYs
	for ranks := 1; ranks <= most; ranks *= 2 {
		took := stepTime(t, ranks, width, height)
		if ranks == 1 {
			alone = took
		}
		speedup := float64(alone) / float64(took)
		t.Logf("%4d ranks: a step takes %v, speedup %.1f", ranks, took, speedup)
		if ranks > 1 {
			require.Greater(t, speedup, speedups[len(speedups)-1].Y)
		}
		require.LessOrEqual(t, speedup, float64(ranks))
		speedups = append(speedups, plotter.XY{X: float64(ranks), Y: speedup})
		ideal = append(ideal, plotter.XY{X: float64(ranks), Y: float64(ranks)})
	}
	if file != "" {
		require.NoError(t, plotSpeedups(file, speedups, ideal))
	}
}

// plotSpeedups plots the speedups beside the ideal ones.
func plotSpeedups(file string, speedups, ideal plotter.XYs) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "ranks", "speedup"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	line, points, err := plotter.NewLinePoints(speedups)
	if err != nil {
		return err
	}
	perfect, err := plotter.NewLine(ideal)
	if err != nil {
		return err
	}
	perfect.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(plotter.NewGrid(), perfect, line, points)
	p.Legend.Add("predicted", line, points)
	p.Legend.Add("ideal", perfect)
	p.Legend.Top, p.Legend.Left = true, true
	return p.Save(12*vg.Centimeter, 8*vg.Centimeter, file)
}
