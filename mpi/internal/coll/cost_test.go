package coll

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// simulated is how long the ranks of a call take for an algorithm's schedules, in ns.
func simulated(t *testing.T, x trial, a *algorithm, fabric Fabric) float64 {
	t.Helper()
	schedules := make([]Schedule, x.size)
	for rank := range schedules {
		c := x.call(rank)
		c.Fabric = fabric
		a.build(&schedules[rank], c)
	}
	return simulatedSchedules(t, schedules, fabric)
}

// simulatedSchedules is how long the ranks take for their schedules, in ns, where a rank sends one message
// after another, and receives likewise.
func simulatedSchedules(t *testing.T, schedules []Schedule, fabric Fabric) float64 {
	t.Helper()
	type message struct{ at float64 } // which it comes
	r, size := &ratesOf[fabric], len(schedules)
	clock, round := make([]float64, size), make([]int, size)
	busy := make([]float64, size) // with sending, until then
	posted := make([]bool, size)
	sent := map[[2]int][]message{}
	for progress := true; progress; {
		progress = false
		for rank := range schedules {
			s := &schedules[rank]
			if round[rank] == s.Rounds() {
				continue
			}
			steps := s.Round(round[rank])
			out, in := 0.0, 0.0
			if !posted[rank] {
				posted[rank], progress = true, true
				at := clock[rank]
				for _, step := range steps {
					if step.Kind == Send {
						at += float64(step.Src.Len) * r.gap
						key := [2]int{rank, step.Peer}
						setup := r.setup * min(float64(step.Src.Len)/setupBytes, 1)
						sent[key] = append(sent[key], message{at + r.latency + setup})
						at += r.message
					}
				}
				busy[rank] = at
			}
			taken, further := map[int]int{}, 0.0
			ready, end := true, clock[rank]
			for _, step := range steps {
				switch step.Kind {
				case Send:
					out += float64(step.Src.Len)
				case Recv:
					queue := sent[[2]int{step.Peer, rank}]
					if taken[step.Peer] >= len(queue) {
						ready = false
						continue
					}
					m := queue[taken[step.Peer]]
					taken[step.Peer]++
					end = max(end+float64(step.Dst.Len)*r.gap+further, m.at)
					in += float64(step.Dst.Len)
					further = r.message
				}
			}
			if !ready {
				continue
			}
			for peer, n := range taken {
				key := [2]int{peer, rank}
				sent[key] = sent[key][n:]
			}
			end = max(end, busy[rank]) + min(in, out)*r.duplex
			for _, step := range steps {
				switch step.Kind {
				case Copy:
					end += float64(step.Dst.Len) * r.copy
				case ReduceLeft, ReduceRight:
					end += float64(step.Dst.Len) * r.reduce
				}
			}
			clock[rank], posted[rank], progress = end, false, true
			round[rank]++
		}
	}
	last := 0.0
	for rank := range clock {
		require.Equal(t, schedules[rank].Rounds(), round[rank])
		last = max(last, clock[rank])
	}
	return last
}

// The predicted costs are near those of the schedules themselves, so that what is cheapest by the one is about
// as cheap by the other.
func TestPredictedCostsAreThoseOfTheSchedules(t *testing.T) {
	const near = 2.5
	for o := range OpNeighborAllgather {
		op := &operations[o]
		for _, size := range []int{2, 3, 4, 7, 8, 16, 31} {
			for _, count := range []int{1, 64, 4096, 65536} {
				if o == OpBarrier && count > 1 || op.costs == nil || o == OpAllgatherv || o == OpReduceScatter {
					continue
				}
				x := trial{operation: o, size: size, count: count, commutative: true}
				for _, fabric := range []Fabric{Network, Loopback, Shared} {
					best, chosen := 0.0, 0.0
					c := x.call(0)
					c.Fabric = fabric
					cheapest, _ := op.cheapest(c)
					for i := range op.algorithms {
						if op.costs[i] == nil || op.algorithms[i].fits != nil && !op.algorithms[i].fits(c) {
							continue
						}
						took := simulated(t, x, &op.algorithms[i], fabric)
						predicted := op.costs[i](c)
						assert.True(t, predicted < near*took && took < near*predicted,
							"%v, %s, %v: predicted %.0f ns, the schedule takes %.0f", x, op.algorithms[i].name,
							fabric, predicted, took)
						if best == 0 || took < best {
							best = took
						}
						if i == cheapest {
							chosen = took
						}
					}
					assert.LessOrEqual(t, chosen, 2*best, "%v, %v: %s", x, fabric, op.algorithms[cheapest].name)
				}
			}
		}
	}
}
