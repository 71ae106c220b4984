package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// totalLoss is the loss of some points, by a network.
func totalLoss(n *network, data []point) float64 {
	sum := 0.0
	for _, p := range data {
		sum += loss(n.forward(p.at[:])[0], p.class)
	}
	return sum
}

// The gradients are compared with what the loss does when a weight is changed a little.
func TestTheGradientsAreSlopesOfTheLoss(t *testing.T) {
	data, n := spirals(7, 3), newNetwork(5, 3)
	var x []float64
	for _, p := range data {
		x = append(x, p.at[:]...)
	}
	last := n.layers[2]
	for i, z := range n.forward(x) {
		last.sensitivity = append(last.sensitivity, slope(z, data[i].class))
	}
	last.differentiate()
	last.propagate(n.layers[1])
	n.layers[1].differentiate()
	n.layers[1].propagate(n.layers[0])
	n.layers[0].differentiate()
	const step = 1e-5
	for i, l := range n.layers {
		for w := range l.weights {
			old := l.weights[w]
			l.weights[w] = old + step
			above := totalLoss(n, data)
			l.weights[w] = old - step
			below := totalLoss(n, data)
			l.weights[w] = old
			require.InDelta(t, (above-below)/(2*step), l.gradient[w], 1e-7, "layer %d, weight %d", i, w)
		}
	}
}

// losses are what a job printed, epoch by epoch, and the accuracy in percent.
func losses(t *testing.T, stdout string) (losses []float64, accuracy float64) {
	for line := range strings.Lines(stdout) {
		var epoch int
		var loss float64
		if _, err := fmt.Sscanf(line, "epoch %d loss %g", &epoch, &loss); err == nil {
			losses = append(losses, loss)
		} else if _, err := fmt.Sscanf(line, "%g %% of", &accuracy); err != nil {
			require.Fail(t, "a line of another kind", line)
		}
	}
	return losses, accuracy
}

// One rank computes without any message. More of them differ from it by rounding alone.
func TestTheLossIsThatOfOneRank(t *testing.T) {
	var want []float64
	for _, ranks := range exampletest.Ranks() {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			stdout, stderr, err := exampletest.Launch(t, ranks, t.TempDir(), "-points", "300", "-batch", "30",
				"-epochs", "20", "-hidden", "8")
			require.NoError(t, err, stderr)
			got, _ := losses(t, stdout)
			require.Len(t, got, 2, stdout)
			require.Less(t, got[1], got[0])
			if want == nil {
				want = got
			}
			require.InEpsilonSlice(t, want, got, 1e-9)
			require.Contains(t, stdout, "; all ranks have the same weights\n")
		})
	}
}

func TestTheSpiralsAreLearned(t *testing.T) {
	stdout, stderr, err := exampletest.Launch(t, 2, t.TempDir(), "-points", "500", "-batch", "16")
	require.NoError(t, err, stderr)
	_, accuracy := losses(t, stdout)
	require.Greater(t, accuracy, 95.0, stdout)
}

// Some ranks have no point of a batch, and take part all the same.
func TestBatchesOfLessThanAPointARank(t *testing.T) {
	stdout, stderr, err := exampletest.Launch(t, 4, t.TempDir(), "-points", "7", "-batch", "3", "-epochs", "2")
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "of 7 points recognized, after 2 epochs on 4 ranks")
}

func TestTheSharesAreTheBatch(t *testing.T) {
	batch := []int{5, 3, 8, 1, 9, 2, 7}
	for ranks := 1; ranks < 10; ranks++ {
		var all []int
		for rank := range ranks {
			all = append(all, share(batch, rank, ranks)...)
		}
		require.Equal(t, batch, all)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-n 4":           "train: flag provided but not defined: -n",
		"fast":           `train: "fast" is not a flag; -h lists them`,
		"-epochs 0":      "train: -epochs 0: must be from 1 to",
		"-points 0":      "train: -points 0: must be from 1 to",
		"-batch -1":      "train: -batch -1: must be from 1 to",
		"-hidden 100000": "train: -hidden 100000: must be from 1 to 4096",
		"-rate 0":        "train: -rate 0: must be above 0 and at most 1",
		"-rate NaN":      "train: -rate NaN: must be above 0",
	})
}

func TestABadFlagEndsTheJob(t *testing.T) { exampletest.Ends(t, 4, "-epochs", "0") }

func TestHelp(t *testing.T) { exampletest.Helps(t, "-hidden int") }
