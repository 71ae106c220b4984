package coll

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
)

// sizes are all small ones and a sample of larger ones: powers of two, their neighbors, primes.
func sizes() (s []int) {
	for size := range testlength.Of(33, 17) {
		s = append(s, size+1)
	}
	return append(s, testlength.Of([]int{48, 64, 65, 97}, []int{31, 32, 33, 48, 97})...)
}

// roots are all of a small size, and the telling ones of a larger.
func roots(size int) (r []int) {
	if size > 33 || size > 9 && !testlength.Whole() {
		return []int{0, 1, size / 2, size - 1}
	}
	for root := range size {
		r = append(r, root)
	}
	return r
}

// some picks n of the counts, others for every turn, so that all are used although not with everything.
func some(counts []int, n, turn int) []int {
	var c []int
	for i := range min(n, len(counts)) {
		c = append(c, counts[(turn+i)%len(counts)])
	}
	return c
}

func constant(n int) func(int) int { return func(int) int { return n } }

// expect runs the job and compares the output of each rank with what is wanted there; nil stands for no
// output.
func expect(t *testing.T, j job, want func(rank int) []byte, what string, args ...any) {
	t.Helper()
	compare(t, j, func(_ int, got []byte) []byte { return got }, want, what, args...)
}

// expectBlocks compares only what lies in blocks, and sees to it that nothing is written in between.
func expectBlocks(t *testing.T, j job, want func(rank int) (Blocks, []byte), what string, args ...any) {
	t.Helper()
	compare(t, j, func(rank int, got []byte) []byte {
		b, _ := want(rank)
		return b.untouched(j.size, got)
	}, func(rank int) []byte {
		_, w := want(rank)
		return w
	}, what, args...)
}

func compare(t *testing.T, j job, view func(rank int, got []byte) []byte, want func(rank int) []byte,
	what string, args ...any) {
	t.Helper()
	seed := uint64(j.size)
	for _, c := range what {
		seed = seed*31 + uint64(c)
	}
	for _, a := range args {
		if n, ok := a.(int); ok {
			seed = seed*31 + uint64(n)
		}
	}
	outputs, err := j.run(seed)
	about := func() string { return fmt.Sprintf("%d ranks, "+what, append([]any{j.size}, args...)...) }
	if err != nil {
		require.NoError(t, err, about())
	}
	for rank, got := range outputs {
		got = view(rank, got)
		if w := want(rank); !bytes.Equal(got, w) {
			at := 0
			for at < len(got) && at < len(w) && got[at] == w[at] {
				at++
			}
			require.Failf(t, "wrong output", "%s: rank %d, byte %d of %d", about(), rank, at, len(w))
		}
	}
}

func nothing(int) []byte { return nil }

// No rank leaves a barrier before all have entered it.
func TestNoRankLeavesABarrierBeforeAllHaveEntered(t *testing.T) {
	for _, size := range append(sizes(), 1000) {
		for _, crowded := range []bool{false, true} {
			schedules := make([]Schedule, size)
			for rank := range schedules {
				Barrier(&schedules[rank], rank, size, crowded)
			}
			for _, late := range []int{0, size / 2, size - 1} {
				for rank, done := range without(schedules, late) {
					require.False(t, done, "rank %d of %d left without %d", rank, size, late)
				}
			}
			if size < 200 {
				j := job{size: size, build: func(s *Schedule, rank int) { Barrier(s, rank, size, crowded) },
					input: nothing, output: constant(0)}
				expect(t, j, nothing, "barrier")
			}
		}
	}
}

// without has everyone but one rank go as far as it can without a word from that, and tells who has come to
// the end.
func without(schedules []Schedule, late int) (done []bool) {
	done = make([]bool, len(schedules))
	reached, begun := make([]int, len(schedules)), make([]bool, len(schedules))
	under := map[[2]int]int{} // messages from one rank to another that have been sent and not received
	for progress := true; progress; {
		progress = false
	ranks:
		for rank := range schedules {
			s := &schedules[rank]
			if rank == late || done[rank] {
				continue
			}
			if done[rank] = reached[rank] == s.Rounds(); done[rank] {
				continue
			}
			round := s.Round(reached[rank])
			if !begun[rank] {
				begun[rank], progress = true, true
				for _, step := range round {
					if step.Kind == Send {
						under[[2]int{rank, step.Peer}]++
					}
				}
			}
			for _, step := range round {
				if step.Kind == Recv && under[[2]int{step.Peer, rank}] == 0 {
					continue ranks
				}
			}
			for _, step := range round {
				if step.Kind == Recv {
					under[[2]int{step.Peer, rank}]--
				}
			}
			reached[rank]++
			begun[rank], progress = false, true
		}
	}
	return done
}

// Bcast's buffer is Output at the root too; the executor fills it through an Input that is the same memory.
func bcast(size, root, n int, algorithm func(s *Schedule, rank, size, root, bytes int)) job {
	return job{
		size:  size,
		build: func(s *Schedule, rank int) { algorithm(s, rank, size, root, n) },
		input: func(rank int) []byte {
			if rank == root {
				return pattern(root, n)
			}
			return nil
		},
		output:  constant(n),
		inPlace: func(rank int) (int, bool) { return 0, rank == root },
	}
}

func TestBcast(t *testing.T) {
	counts := []int{0, 1, 2, 5, 7, 13, 64, 97, 256}
	algorithms := map[string]func(s *Schedule, rank, size, root, bytes int){
		"tree": bcastTree,
		"scatter and ring": func(s *Schedule, rank, size, root, bytes int) {
			bcastScatter(s, rank, size, root, bytes, false)
		},
		"scatter and doubling": func(s *Schedule, rank, size, root, bytes int) {
			bcastScatter(s, rank, size, root, bytes, powerOfTwo(size))
		},
		"selected": bcastSelected,
	}
	for what, algorithm := range algorithms {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes() {
				for _, root := range roots(size) {
					for _, n := range some(counts, 2, size+root) {
						expect(t, bcast(size, root, n, algorithm),
							func(int) []byte { return pattern(root, n) },
							"root %d, %d bytes", root, n)
					}
				}
			}
		})
	}
}

func TestBcastSelected(t *testing.T) {
	for _, size := range []int{2, 7, 8, 12, 16} {
		for _, n := range []int{8 << 10, 12<<10 + 1, 512 << 10, 512<<10 + 1} {
			root := size / 3
			want := pattern(root, n)
			expect(t, bcast(size, root, n, bcastSelected), func(int) []byte { return want }, "root %d, %d bytes",
				root, n)
		}
	}
}

type reducer func(s *Schedule, rank, size, root, count, elemSize int)

func reduction(size, root, count int, op operator, inPlace bool, input func(rank int) []byte,
	algorithm reducer) job {
	j := job{
		size:  size,
		op:    op,
		build: func(s *Schedule, rank int) { algorithm(s, rank, size, root, count, op.elemSize) },
		input: input,
		output: func(rank int) int {
			if rank == root || root == noRoot {
				return count * op.elemSize
			}
			return 0
		},
	}
	if inPlace {
		j.inPlace = func(rank int) (int, bool) { return 0, rank == root || root == noRoot }
	}
	return j
}

// reduces runs a reduction that keeps the order of ranks with an operator that tells, or one that does not
// with one that commutes.
func reduces(t *testing.T, size, root, count int, ordered bool, algorithm reducer) {
	t.Helper()
	inPlace := (size+root+count)%2 == 0
	var j job
	var result []byte
	if ordered {
		result = ranges(0, size-1, 0, count)
		j = reduction(size, root, count, concatenation, inPlace,
			func(rank int) []byte { return ranges(rank, rank, 0, count) }, algorithm)
	} else {
		op := addition([]int{1, 3, 4, 8, 24}[(size+count)%5])
		n := count * op.elemSize
		result = sum(0, size, n)
		j = reduction(size, root, count, op, inPlace, func(rank int) []byte { return random(rank, n) },
			algorithm)
	}
	expect(t, j, func(rank int) []byte {
		if rank == root || root == noRoot {
			return result
		}
		return nil
	}, "root %d, %d elements, in place %v", root, count, inPlace)
}

var reductionCounts = []int{0, 1, 2, 3, 7, 16, 31, 33, 64, 101}

func TestReduce(t *testing.T) {
	algorithms := map[string]struct {
		ordered bool
		reducer
	}{
		"tree, commutative": {false, func(s *Schedule, rank, size, root, count, elemSize int) {
			reduceTree(s, rank, size, root, count, elemSize, true)
		}},
		"tree, in order": {true, func(s *Schedule, rank, size, root, count, elemSize int) {
			reduceTree(s, rank, size, root, count, elemSize, false)
		}},
		"halving, in order": {true, reduceHalving},
		"selected, commutative": {false, func(s *Schedule, rank, size, root, count, elemSize int) {
			Reduce(s, rank, size, root, count, elemSize, true)
		}},
		"selected, in order": {true, func(s *Schedule, rank, size, root, count, elemSize int) {
			Reduce(s, rank, size, root, count, elemSize, false)
		}},
	}
	for what, a := range algorithms {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes() {
				for _, root := range roots(size) {
					for _, count := range some(reductionCounts, 2, size+root) {
						reduces(t, size, root, count, a.ordered, a.reducer)
					}
				}
			}
			if what == "selected, in order" || what == "selected, commutative" {
				for _, size := range []int{2, 3, 8, 13, 33} {
					for _, count := range []int{128, 129, 1009, 5000} {
						reduces(t, size, size/2, count, a.ordered, a.reducer)
					}
				}
			}
		})
	}
}

func bcastSelected(s *Schedule, rank, size, root, bytes int) {
	c := Call{Operation: OpBcast, Rank: rank, Size: size, Root: root, Count: bytes, ElemSize: 1}
	c.Build(s)
}

func allreduceSelected(s *Schedule, rank, size, count, elemSize int, commutative bool) {
	c := Call{Operation: OpAllreduce, Rank: rank, Size: size, Count: count, ElemSize: elemSize,
		Commutative: commutative}
	c.Build(s)
}

func TestAllreduce(t *testing.T) {
	algorithms := map[string]struct {
		ordered   bool
		algorithm func(s *Schedule, rank, size, count, elemSize int)
	}{
		"doubling": {true, allreduceDoubling},
		"halving":  {true, allreduceHalving},
		"ring":     {false, allreduceRing},
		"selected, commutative": {false, func(s *Schedule, rank, size, count, elemSize int) {
			allreduceSelected(s, rank, size, count, elemSize, true)
		}},
		"selected, in order": {true, func(s *Schedule, rank, size, count, elemSize int) {
			allreduceSelected(s, rank, size, count, elemSize, false)
		}},
	}
	for what, a := range algorithms {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			algorithm := func(s *Schedule, rank, size, _, count, elemSize int) {
				a.algorithm(s, rank, size, count, elemSize)
			}
			for _, size := range sizes() {
				for _, count := range some(reductionCounts, 5, size) {
					reduces(t, size, noRoot, count, a.ordered, algorithm)
				}
			}
			if what == "selected, in order" || what == "selected, commutative" {
				for _, size := range []int{2, 3, 8, 13} {
					for _, bytes := range []int{2 << 10, (8 << 10) * size, (16 << 10) * size} {
						for _, more := range []int{0, 1} {
							reduces(t, size, noRoot, bytes/16+more, a.ordered, algorithm)
						}
					}
				}
			}
		})
	}
}

func gather(size, root, n int, inPlace bool, algorithm func(s *Schedule, rank, size, root, n int)) job {
	j := job{
		size:  size,
		build: func(s *Schedule, rank int) { algorithm(s, rank, size, root, n) },
		input: func(rank int) []byte { return pattern(rank, n) },
		output: func(rank int) int {
			if rank == root {
				return size * n
			}
			return 0
		},
	}
	if inPlace {
		j.inPlace = func(rank int) (int, bool) { return rank * n, rank == root }
	}
	return j
}

// blocksOf is the patterns of all ranks, one after another.
func blocksOf(size, n int) []byte {
	var b []byte
	for rank := range size {
		b = append(b, pattern(rank, n)...)
	}
	return b
}

func TestGather(t *testing.T) {
	algorithms := map[string]func(s *Schedule, rank, size, root, n int){
		"tree": gatherTree,
		"linear": func(s *Schedule, rank, size, root, n int) {
			gatherLinear(s, rank, size, root, n, even(n))
		},
		"selected": Gather,
	}
	for what, algorithm := range algorithms {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes() {
				for _, root := range roots(size) {
					for _, n := range some([]int{0, 1, 3, 8, 13, 64}, 1, size+root) {
						inPlace := (size+root/2)%2 == 0
						want := blocksOf(size, n)
						expect(t, gather(size, root, n, inPlace, algorithm), func(rank int) []byte {
							if rank == root {
								return want
							}
							return nil
						}, "root %d, %d bytes, in place %v", root, n, inPlace)
					}
				}
			}
		})
	}
}

// The blocks of a call between neighbors can be fewer than the ranks.
func TestBytesOfACall(t *testing.T) {
	for want, c := range map[int]Call{
		12: {Operation: OpAllreduce, Size: 2, Count: 3, ElemSize: 4},
		24: {Operation: OpNeighborAllgatherv, Size: 4, Count: 1, ElemSize: 8,
			Recv: &Blocks{Counts: []int{1, 2}, ElemSize: 8}},
		16: {Operation: OpNeighborAllgather, Size: 4, Count: 2, ElemSize: 8, Recv: Even(16)},
		40: {Operation: OpScatterv, Size: 2, Count: 1, ElemSize: 8,
			Send: &Blocks{Counts: []int{1, 4}, ElemSize: 8}},
	} {
		require.Equal(t, want, c.Bytes(), "%v", c.Operation)
	}
}
