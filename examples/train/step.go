package main

import (
	"math"
	"math/rand/v2"

	"github.com/weft-mpi/weft/mpi"
)

// trainer changes a network's weights, together with the other ranks.
type trainer struct {
	world    *mpi.Comm
	net      *network
	p        problem
	steps    int
	averages []averages // of each layer
	requests []mpi.Request
}

// averages are running means of a layer's gradients and of their squares, which Adam needs.
type averages struct{ gradient, square []float64 }

func newTrainer(world *mpi.Comm, net *network, p problem) *trainer {
	t := &trainer{world: world, net: net, p: p}
	for _, l := range net.layers {
		t.averages = append(t.averages, averages{make([]float64, len(l.weights)),
			make([]float64, len(l.weights))})
	}
	return t
}

// epoch takes all points once, in an order that follows from the seed and the epoch, and returns their mean
// loss, the same at every rank.
func (t *trainer) epoch(data []point, epoch int) (float64, error) {
	order := rand.New(rand.NewPCG(t.p.Seed, uint64(epoch)+2)).Perm(len(data))
	sum := []float64{0}
	for len(order) > 0 {
		batch := order[:min(t.p.Batch, len(order))]
		order = order[len(batch):]
		lost, err := t.step(data, batch)
		if err != nil {
			return 0, err
		}
		sum[0] += lost
	}
	err := mpi.Allreduce(t.world, mpi.InPlace[float64](), sum, mpi.Sum[float64]())
	return sum[0] / float64(len(data)), err
}

// step changes the weights by the gradient of a batch, and returns the loss of this rank's part of it.
func (t *trainer) step(data []point, batch []int) (float64, error) {
	lost, err := t.differentiate(data, share(batch, t.world.Rank(), t.world.Size()))
	if err != nil {
		return 0, err
	}
	t.steps++
	for i, l := range t.net.layers {
		t.change(l, t.averages[i], len(batch))
	}
	return lost, nil
}

// share is a rank's part of a batch. It may be empty.
func share(batch []int, rank, ranks int) []int {
	return batch[len(batch)*rank/ranks : len(batch)*(rank+1)/ranks]
}

// differentiate sets the gradients of all layers, for the points of all ranks, and returns the loss of this
// rank's points.
func (t *trainer) differentiate(data []point, mine []int) (lost float64, err error) {
	x := make([]float64, 0, 2*len(mine))
	for _, i := range mine {
		x = append(x, data[i].at[:]...)
	}
	layers := t.net.layers
	last := layers[len(layers)-1]
	last.sensitivity = last.sensitivity[:0]
	for k, z := range t.net.forward(x) {
		class := data[mine[k]].class
		lost += loss(z, class)
		last.sensitivity = append(last.sensitivity, slope(z, class))
	}
	t.requests = t.requests[:0]
	for i := len(layers) - 1; i >= 0; i-- {
		l := layers[i]
		l.differentiate()
		// The gradient belongs to weft from here on until Waitall. What is computed meanwhile, the
		// sensitivity and the gradient of the layer before, needs only the weights of this one.
		r, err := mpi.Iallreduce(t.world, mpi.InPlace[float64](), l.gradient, mpi.Sum[float64]())
		if err != nil {
			return 0, err
		}
		t.requests = append(t.requests, r)
		if i > 0 {
			l.propagate(layers[i-1])
		}
	}
	return lost, mpi.Waitall(t.requests)
}

// change changes the weights of a layer by the method Adam (Kingma and Ba, 2015), by the gradient of a batch
// of points.
func (t *trainer) change(l *layer, a averages, points int) {
	const memory, squareMemory, epsilon = 0.9, 0.999, 1e-8
	correction := 1 - math.Pow(memory, float64(t.steps))
	squareCorrection := 1 - math.Pow(squareMemory, float64(t.steps))
	for w, sum := range l.gradient {
		g := sum / float64(points)
		a.gradient[w] += (1 - memory) * (g - a.gradient[w])
		a.square[w] += (1 - squareMemory) * (g*g - a.square[w])
		l.weights[w] -= t.p.Rate * (a.gradient[w] / correction) /
			(math.Sqrt(a.square[w]/squareCorrection) + epsilon)
	}
}
