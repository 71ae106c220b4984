package coll

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the transcripts in testdata anew")

// transcript shows the schedules of all ranks: a line for the messages of a round, then a line for each local
// step.
func transcript(title string, size int, build func(s *Schedule, rank int)) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", title)
	for rank := range size {
		var s Schedule
		build(&s, rank)
		fmt.Fprintf(&out, "\nrank %d", rank)
		if s.Scratch > 0 {
			fmt.Fprintf(&out, ", %d bytes of scratch", s.Scratch)
		}
		out.WriteByte('\n')
		for i := range s.Rounds() {
			number := fmt.Sprint(i + 1)
			var messages, local []string
			for _, step := range s.Round(i) {
				if step.Kind == Send || step.Kind == Recv {
					messages = append(messages, step.String())
				} else {
					local = append(local, step.String())
				}
			}
			if len(messages) > 0 {
				local = append([]string{strings.Join(messages, "; ")}, local...)
			}
			for _, line := range local {
				fmt.Fprintf(&out, "  %s  %s\n", number, line)
				number = strings.Repeat(" ", len(number))
			}
		}
	}
	return out.String()
}

// The transcripts show whoever reads them what the algorithms are. go test -run Transcripts -update writes
// them.
func TestTranscripts(t *testing.T) {
	for _, c := range []struct {
		file, title string
		size        int
		build       func(s *Schedule, rank int)
	}{
		{"barrier", "Barrier of 5 ranks: dissemination", 5,
			func(s *Schedule, rank int) { Barrier(s, rank, 5, false) }},
		{"barrier_flat", "Barrier of 6 crowded ranks: by way of rank 0", 6,
			func(s *Schedule, rank int) { Barrier(s, rank, 6, true) }},
		{"bcast_tree", "Bcast of 100 bytes from rank 2 to 7 ranks: a binomial tree", 7,
			func(s *Schedule, rank int) { bcastTree(s, rank, 7, 2, 100) }},
		{"bcast_ring", "Bcast of 100 bytes from rank 1 to 5 ranks: blocks scattered and passed round a ring", 5,
			func(s *Schedule, rank int) { bcastScatter(s, rank, 5, 1, 100, false) }},
		{"bcast_doubling", "Bcast of 100 bytes from rank 0 to 4 ranks: blocks scattered and exchanged by doubling", 4,
			func(s *Schedule, rank int) { bcastScatter(s, rank, 4, 0, 100, true) }},
		{"reduce_tree", "Reduce of 3 elements of 8 bytes at rank 2 of 6, in the order of ranks: a binomial tree", 6,
			func(s *Schedule, rank int) { reduceTree(s, rank, 6, 2, 3, 8, false) }},
		{"reduce_halving", "Reduce of 8 elements of 8 bytes at rank 0 of 5: halving, then a gather", 5,
			func(s *Schedule, rank int) { reduceHalving(s, rank, 5, 0, 8, 8) }},
		{"allreduce_doubling",
			"Allreduce of an element of 8 bytes by 6 ranks: folding, doubling, unfolding", 6,
			func(s *Schedule, rank int) { allreduceDoubling(s, rank, 6, 1, 8) }},
		{"allreduce_halving", "Allreduce of 8 elements of 8 bytes by 4 ranks: halving and the way back", 4,
			func(s *Schedule, rank int) { allreduceHalving(s, rank, 4, 8, 8) }},
		{"allreduce_ring", "Allreduce of 7 elements of 8 bytes by 3 ranks: twice round a ring", 3,
			func(s *Schedule, rank int) { allreduceRing(s, rank, 3, 7, 8) }},
		{"gather_tree", "Gather of 10 bytes a rank at rank 3 of 6: a binomial tree", 6,
			func(s *Schedule, rank int) { gatherTree(s, rank, 6, 3, 10) }},
		{"scatter_tree", "Scatter of 10 bytes a rank from rank 3 of 6: a binomial tree", 6,
			func(s *Schedule, rank int) {
				gatherTree(s, rank, 6, 3, 10)
				s.mirror()
			}},
		{"allgather_bruck", "Allgather of 10 bytes a rank by 5 ranks: Bruck's algorithm", 5,
			func(s *Schedule, rank int) { allgatherBruck(s, rank, 5, even(10)) }},
		{"alltoall_bruck", "Alltoall of 10 bytes a pair by 5 ranks: Bruck's algorithm", 5,
			func(s *Schedule, rank int) { alltoallBruck(s, rank, 5, 10) }},
		{"alltoall_pairwise", "Alltoall of 10 bytes a pair by 4 ranks: pairs, two distances in a round", 4,
			func(s *Schedule, rank int) { alltoallPairwise(s, rank, 4, even(10), even(10), 2) }},
		{"reducescatter_pairwise",
			"ReduceScatter of an element of 8 bytes a rank by 4 ranks: pairs, in order", 4,
			func(s *Schedule, rank int) { reduceScatterPairwise(s, rank, 4, even(8)) }},
		{"reducescatter_halving", "ReduceScatter of an element of 8 bytes a rank by 5 ranks: halving", 5,
			func(s *Schedule, rank int) { reduceScatterHalving(s, rank, 5, even(8)) }},
		{"scan", "Scan of an element of 8 bytes by 5 ranks", 5,
			func(s *Schedule, rank int) { Scan(s, rank, 5, 1, 8) }},
		{"exscan", "Exscan of an element of 8 bytes by 5 ranks", 5,
			func(s *Schedule, rank int) { Exscan(s, rank, 5, 1, 8) }},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := filepath.Join("testdata", c.file+".txt")
			got := transcript(c.title, c.size, c.build)
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

// Every algorithm takes the rounds and moves the bytes for which it was chosen: at no rank more than these.
func TestRoundsAndBytes(t *testing.T) {
	const unit = 16
	up := func(a, b int) int { return (a + b - 1) / b }
	for _, size := range sizes() {
		if size == 1 {
			continue
		}
		log := bits.Len(uint(size - 1))
		folded := 0
		if !powerOfTwo(size) {
			folded = 1
		}
		core := bits.Len(uint(size)) - 1
		count := 8 * size
		n := count * unit
		// A number may stand for two ranks and their blocks.
		halved := folded * size
		for numbers := 1 << core / 2; numbers > 0; numbers /= 2 {
			halved += numbers + min(numbers, size-1<<core)
		}
		for _, c := range []struct {
			what   string
			build  func(s *Schedule, rank int)
			rounds int
			bytes  int // that a rank receives
		}{
			{"barrier", func(s *Schedule, rank int) { Barrier(s, rank, size, false) }, log, 0},
			{"bcast, tree", func(s *Schedule, rank int) { bcastTree(s, rank, size, 1, n) }, 2, n},
			{"bcast, ring", func(s *Schedule, rank int) { bcastScatter(s, rank, size, 1, n, false) }, size +
				1, n},
			{"reduce, tree", func(s *Schedule, rank int) {
				reduceTree(s, rank, size, 1, count, unit,
					true)
			}, 2, log * n},
			{"reduce, halving", func(s *Schedule, rank int) { reduceHalving(s, rank, size, 1, count, unit) },
				2*core + folded, (2 + folded) * n},
			{"allreduce, doubling", func(s *Schedule, rank int) {
				allreduceDoubling(s, rank, size, count,
					unit)
			},
				core + 2*folded, (core + folded) * n},
			{"allreduce, halving", func(s *Schedule, rank int) {
				allreduceHalving(s, rank, size, count,
					unit)
			},
				2*core + 2*folded, (2 + folded) * n},
			{"allreduce, ring", func(s *Schedule, rank int) { allreduceRing(s, rank, size, count, unit) },
				2 * (size - 1), up(2*n*(size-1), size)},
			{"gather, tree", func(s *Schedule, rank int) { gatherTree(s, rank, size, 1, unit) }, 2,
				(size - 1) * unit},
			{"scatter, tree", func(s *Schedule, rank int) {
				gatherTree(s, rank, size, 1, unit)
				s.mirror()
			}, 2,
				up(size, 2) * unit},
			{"allgather, Bruck", func(s *Schedule, rank int) { allgatherBruck(s, rank, size, even(unit)) },
				log, (size - 1) * unit},
			{"allgather, ring", func(s *Schedule, rank int) { allgatherRing(s, rank, size, even(unit)) },
				size - 1, (size - 1) * unit},
			{"alltoall, Bruck", func(s *Schedule, rank int) { alltoallBruck(s, rank, size, unit) },
				log + 1, log * (size / 2) * unit},
			{"alltoall, pairwise", func(s *Schedule, rank int) {
				alltoallPairwise(s, rank, size, even(unit), even(unit), alltoallWindow)
			}, up(size-1, alltoallWindow), (size - 1) * unit},
			{"reduce-scatter, halving", func(s *Schedule, rank int) {
				reduceScatterHalving(s, rank, size,
					even(8*unit))
			},
				core + 2*folded, halved * 8 * unit},
			{"reduce-scatter, pairwise", func(s *Schedule, rank int) {
				reduceScatterPairwise(s, rank, size,
					even(8*unit))
			},
				size - 1, n},
			{"scan", func(s *Schedule, rank int) {
				scanDoubling(s, &Call{Rank: rank, Size: size, Count: count, ElemSize: unit})
			}, log, log * n},
			{"exscan", func(s *Schedule, rank int) { Exscan(s, rank, size, count, unit) }, log, log * n},
		} {
			for rank := range size {
				var s Schedule
				c.build(&s, rank)
				received := 0
				for _, step := range s.steps {
					if step.Kind == Recv {
						received += step.Dst.Len
					}
				}
				if s.Rounds() > c.rounds || received > c.bytes {
					require.Failf(t, "costs too much",
						"%s, rank %d of %d: %d rounds, at most %d; %d bytes, at most %d",
						c.what, rank, size, s.Rounds(), c.rounds, received, c.bytes)
				}
			}
		}
	}
}

// All ranks get the same bits from an Allreduce even if the operator rounds, and minds the order of its
// operands as addition does when both are NaN.
func TestAllreduceGivesAllRanksTheSameBits(t *testing.T) {
	op := operator{8, func(dst, left, right []byte) {
		l := math.Float64frombits(binary.LittleEndian.Uint64(left))
		r := math.Float64frombits(binary.LittleEndian.Uint64(right))
		binary.LittleEndian.PutUint64(dst, math.Float64bits(l*1.0000001+r/3))
	}}
	const count = 50
	for what, algorithm := range map[string]func(s *Schedule, rank, size, count, elemSize int){
		"doubling": allreduceDoubling, "halving": allreduceHalving, "ring": allreduceRing,
	} {
		for _, size := range sizes() {
			j := reduction(size, noRoot, count, op, false, func(rank int) []byte {
				var b []byte
				for i := range count {
					b = binary.LittleEndian.AppendUint64(b,
						math.Float64bits(math.Exp(float64((rank*7+i)%23))/3))
				}
				return b
			}, func(s *Schedule, rank, size, _, count, elemSize int) {
				algorithm(s, rank, size, count,
					elemSize)
			})
			outputs, err := j.run(uint64(size))
			require.NoError(t, err)
			for rank, b := range outputs {
				require.True(t, bytes.Equal(outputs[0], b), "%s, %d ranks: ranks 0 and %d differ", what,
					size, rank)
			}
		}
	}
}

func TestACopyDoesNotReachIntoTheRoundBefore(t *testing.T) {
	var s Schedule
	s.copy(Span{Output, 0, 4}, Span{Input, 0, 4})
	s.copy(Span{Output, 4, 4}, Span{Input, 4, 4})
	s.round()
	s.copy(Span{Output, 8, 4}, Span{Input, 8, 4})
	s.round()
	s.round()
	require.Equal(t, 2, s.Rounds())
	assert.Equal(t, []Step{{Kind: Copy, Src: Span{Input, 0, 8}, Dst: Span{Output, 0, 8}}}, s.Round(0))
	assert.Equal(t, []Step{{Kind: Copy, Src: Span{Input, 8, 4}, Dst: Span{Output, 8, 4}}}, s.Round(1))
}

// calls are calls of all operations but those on neighbors, as an application makes them.
func calls(rank, size, n int, counts, displs []int) []*Call {
	b := &Blocks{counts, displs, 8}
	var all []*Call
	for o := range OpNeighborAllgather {
		c := &Call{Operation: o, Rank: rank, Size: size, Count: n / 8, ElemSize: 8, Commutative: true,
			Processors: rank % 2}
		if counts != nil && (o == OpGatherv || o == OpScatterv || o == OpAllgatherv || o == OpAlltoallv ||
			o == OpReduceScatter) {
			c.Count, c.Send, c.Recv = counts[rank], b, b
		}
		all = append(all, c)
	}
	return all
}

func TestNothingIsAllocatedOnceAScheduleHasGrown(t *testing.T) {
	for _, size := range []int{2, 13, 16} {
		counts, displs := make([]int, size), make([]int, size)
		for i := range counts {
			counts[i], displs[i] = 10, 10*i
		}
		for _, n := range []int{8, 1 << 20} {
			var s Schedule
			for rank := range size {
				for _, c := range calls(rank, size, n, counts, displs) {
					build := func() { c.Build(&s) }
					build()
					assert.Zero(t, testing.AllocsPerRun(5, build), "%v, rank %d of %d", c.Operation, rank,
						size)
				}
			}
		}
	}
}

func BenchmarkSchedule(b *testing.B) {
	for _, size := range []int{2, 16} {
		for _, n := range []int{8, 1 << 20} {
			for _, o := range []Operation{OpBarrier, OpBcast, OpReduce, OpAllreduce, OpGather} {
				b.Run(fmt.Sprintf("%v/ranks=%d/bytes=%d", o, size, n), func(b *testing.B) {
					var s Schedule
					c := calls(0, size, n, nil, nil)[o]
					b.ReportAllocs()
					for range b.N {
						c.Build(&s)
					}
				})
			}
		}
	}
}
