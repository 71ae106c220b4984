package coll

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// sparsePlan has each rank send to the ranks at some distances.
type sparsePlan struct {
	size, bytes int
	distances   []int
}

func newSparsePlan(size, degree, bytes int) sparsePlan {
	p := sparsePlan{size: size, bytes: bytes}
	for _, d := range rand.New(rand.NewPCG(1, uint64(size))).Perm(size - 1)[:degree] {
		p.distances = append(p.distances, d+1)
	}
	return p
}

// exchange is what the messages of a sparse exchange do: all go at once, each is acknowledged, and a barrier
// follows.
func (p sparsePlan) exchange(s *Schedule, rank int) {
	message := Span{Buf: Input, Len: p.bytes}
	for _, block := range []Span{message, {}} { // acknowledgements go the other way
		for _, d := range p.distances {
			above, below := (rank+d)%p.size, (rank-d+p.size)%p.size
			if block.Len == 0 {
				above, below = below, above
			}
			s.recv(below, block)
			s.send(above, block)
		}
		s.round()
	}
	barrierDissemination(s, rank, p.size)
}

// lengthsFirst is an Alltoall of the lengths by the algorithm that is chosen, and an Alltoallv.
func (p sparsePlan) lengthsFirst(s *Schedule, rank int) {
	c := Call{Operation: OpAlltoall, Rank: rank, Size: p.size, Count: 1, ElemSize: 8}
	op := &operations[OpAlltoall]
	chosen, _ := op.cheapest(&c)
	op.algorithms[chosen].build(s, &c)
	p.alltoallv(s, rank)
}

func (p sparsePlan) alltoallv(s *Schedule, rank int) {
	sends, receives := make([]int, p.size), make([]int, p.size)
	for _, d := range p.distances {
		sends[(rank+d)%p.size], receives[(rank-d+p.size)%p.size] = p.bytes, p.bytes
	}
	alltoallvAlgorithms[0].build(s, &Call{Operation: OpAlltoallv, Rank: rank, Size: p.size, ElemSize: 1,
		Send: &Blocks{Counts: sends, ElemSize: 1}, Recv: &Blocks{Counts: receives, ElemSize: 1}})
}

// simulated returns the messages that a rank sends and the time in ns.
func (p sparsePlan) simulated(t *testing.T, build func(s *Schedule, rank int)) (messages int, took float64) {
	schedules := make([]Schedule, p.size)
	for rank := range schedules {
		build(&schedules[rank], rank)
	}
	for i := range schedules[0].Rounds() {
		for _, step := range schedules[0].Round(i) {
			if step.Kind == Send {
				messages++
			}
		}
	}
	return messages, simulatedSchedules(t, schedules, Network)
}

var sparseRanks = flag.Int("sparse.ranks", 256, "most ranks of TestSparseExchangeIsAheadOfAlltoallv")

// By the cost model, a sparse exchange of short messages between hosts takes less time than an Alltoall of
// lengths and an Alltoallv: among 64 ranks of which each sends to four, and among 1,024 whatever the degree.
// docs/guide/performance.md has the result.
func TestSparseExchangeIsAheadOfAlltoallv(t *testing.T) {
	t.Log("ranks degree   exchange         alltoallv        lengths first    (messages of a rank, µs)")
	for size := 4; size <= *sparseRanks; size *= 4 {
		for _, degree := range []int{1, 4, 20} {
			if degree >= size {
				continue
			}
			p := newSparsePlan(size, degree, 64)
			line := fmt.Sprintf("%5d %6d", size, degree)
			var took [3]float64
			for i, build := range []func(*Schedule, int){p.exchange, p.alltoallv, p.lengthsFirst} {
				var messages int
				messages, took[i] = p.simulated(t, build)
				line += fmt.Sprintf("   %5d %8.1f", messages, took[i]/1000)
			}
			t.Log(line)
			if size >= 64 && degree >= 4 || size >= 1024 {
				require.Less(t, took[0], took[2], line)
			}
		}
	}
}
