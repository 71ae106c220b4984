package main

import (
	"math"
	"math/rand/v2"
)

// layer computes tanh(Wx + b), or Wx + b in the last layer. Its weights are one slice, and its gradient is
// another one, which one message carries.
type layer struct {
	inputs, outputs int
	last            bool
	weights         []float64 // of each output: one for each input, and the bias
	gradient        []float64 // of the weights, added up over points

	// For each point at hand:
	input, output []float64
	sensitivity   []float64 // by how much the loss changes with each output, before tanh
}

// network classifies a point of two coordinates by one number: the logarithm of the odds that it belongs to
// class 1.
type network struct{ layers []*layer }

// newNetwork makes a network with random weights, the same for the same seed.
func newNetwork(hidden int, seed uint64) *network {
	random := rand.New(rand.NewPCG(seed, 1))
	widths := []int{2, hidden, hidden, 1}
	n := &network{}
	for i, inputs := range widths[:len(widths)-1] {
		outputs := widths[i+1]
		l := &layer{inputs: inputs, outputs: outputs, last: i == len(widths)-2,
			weights: make([]float64, outputs*(inputs+1)), gradient: make([]float64, outputs*(inputs+1))}
		for w := range l.weights {
			l.weights[w] = random.NormFloat64() / math.Sqrt(float64(inputs))
		}
		n.layers = append(n.layers, l)
	}
	return n
}

// of are an output's weights, or the gradient of these, with the bias at the end.
func (l *layer) of(numbers []float64, output int) []float64 {
	return numbers[output*(l.inputs+1):][:l.inputs+1]
}

// forward computes the answers for points whose coordinates follow one another.
func (n *network) forward(x []float64) []float64 {
	for _, l := range n.layers {
		l.input = x
		l.output = l.output[:0]
		for ; len(x) > 0; x = x[l.inputs:] {
			for j := range l.outputs {
				w := l.of(l.weights, j)
				sum := w[l.inputs]
				for i, v := range x[:l.inputs] {
					sum += w[i] * v
				}
				if !l.last {
					sum = math.Tanh(sum)
				}
				l.output = append(l.output, sum)
			}
		}
		x = l.output
	}
	return x
}

// differentiate sets the gradient of the layer by its inputs and its sensitivity.
func (l *layer) differentiate() {
	clear(l.gradient)
	for point := range len(l.sensitivity) / l.outputs {
		input := l.input[point*l.inputs:][:l.inputs]
		for j, s := range l.sensitivity[point*l.outputs:][:l.outputs] {
			g := l.of(l.gradient, j)
			for i, v := range input {
				g[i] += s * v
			}
			g[l.inputs] += s
		}
	}
}

// propagate computes the sensitivity of the layer before.
func (l *layer) propagate(before *layer) {
	before.sensitivity = before.sensitivity[:0]
	for k, v := range before.output {
		point, i := k/l.inputs, k%l.inputs
		sum := 0.0
		for j, s := range l.sensitivity[point*l.outputs:][:l.outputs] {
			sum += s * l.of(l.weights, j)[i]
		}
		before.sensitivity = append(before.sensitivity, sum*(1-v*v))
	}
}

// loss is the cross entropy of the network's answer z for a point of a class.
func loss(z, class float64) float64 {
	// log(1+exp(z)) - class·z, without overflow
	return max(z, 0) + math.Log1p(math.Exp(-math.Abs(z))) - class*z
}

// slope is the derivative of the loss with respect to the answer.
func slope(z, class float64) float64 { return 1/(1+math.Exp(-z)) - class }

// accuracy is the part of the points whose class the network finds.
func (n *network) accuracy(data []point) float64 {
	right := 0
	for i := range data {
		if (n.forward(data[i].at[:])[0] > 0) == (data[i].class == 1) {
			right++
		}
	}
	return float64(right) / float64(len(data))
}

// point is a place in the plane, and the spiral that it belongs to: 0 or 1.
type point struct {
	at    [2]float64
	class float64
}

// spirals are points on two spirals that wind around each other, the same for the same seed.
func spirals(count int, seed uint64) []point {
	random := rand.New(rand.NewPCG(seed, 0))
	data := make([]point, count)
	for i := range data {
		class := i % 2
		radius := math.Sqrt(random.Float64())
		sin, cos := math.Sincos(2*math.Pi*radius + math.Pi*float64(class))
		data[i] = point{[2]float64{2*radius*cos + 0.03*random.NormFloat64(),
			2*radius*sin + 0.03*random.NormFloat64()}, float64(class)}
	}
	return data
}
