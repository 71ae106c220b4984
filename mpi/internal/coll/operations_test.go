package coll

import (
	"bytes"
	"testing"
)

// uneven gives each rank a count of its own, from 0 to 12, or to 4 if there are many ranks, and places blocks
// backwards with gaps in between, so that whoever takes blocks to be even or in order is found out.
func uneven(size, turn int) Blocks {
	b := Blocks{Counts: make([]int, size), Displs: make([]int, size), ElemSize: 1 + turn%4}
	counts := 13
	if size > 33 {
		counts = 5
	}
	at := 0
	for rank := size - 1; rank >= 0; rank-- {
		b.Counts[rank] = (rank*7 + turn*5) % counts
		b.Displs[rank] = at + rank%2
		at = b.Displs[rank] + b.Counts[rank]
	}
	return b
}

// scattered lays blocks out in a buffer; what lies between them is zero.
func (b Blocks) scattered(size int, block func(rank int) []byte) []byte {
	buf := make([]byte, b.extent(size))
	for rank := range size {
		s := b.span(Output, rank)
		copy(buf[s.Off:s.Off+s.Len], block(rank))
	}
	return buf
}

// untouched makes zero what lies between the blocks of an output, where it is as it was.
func (b Blocks) untouched(size int, buf []byte) []byte {
	between := bytes.Repeat([]byte{1}, len(buf))
	for rank := range size {
		s := b.span(Output, rank)
		clear(between[s.Off : s.Off+s.Len])
	}
	view := bytes.Clone(buf)
	for i, v := range buf {
		if between[i] == 1 && v == untouched {
			view[i] = 0
		}
	}
	return view
}

// hop is the content of what one rank sends to another.
func hop(from, to, n int) []byte {
	return pattern(from*131+to, n)
}

func layouts(size, turn int) map[string]Blocks {
	return map[string]Blocks{
		"even":    even([]int{0, 1, 5, 8, 16}[turn%5]),
		"uneven":  uneven(size, turn),
		"in line": {Counts: uneven(size, turn).Counts, ElemSize: 3},
	}
}

func TestGatherv(t *testing.T) {
	for _, size := range sizes() {
		for _, root := range roots(size) {
			if size > 12 && root%5 != size%5 {
				continue
			}
			for what, b := range layouts(size, size+root) {
				block := func(rank int) []byte { return pattern(rank, b.bytes(rank)) }
				j := job{
					size: size,
					build: func(s *Schedule, rank int) {
						mine := Blocks{}
						if rank == root {
							mine = b
						}
						Gatherv(s, rank, size, root, b.bytes(rank), mine)
					},
					input: block,
					output: func(rank int) int {
						if rank == root {
							return b.extent(size)
						}
						return 0
					},
				}
				if root%2 == 0 {
					j.inPlace = func(rank int) (int, bool) { return b.span(Output, rank).Off, rank == root }
				}
				expectBlocks(t, j, func(rank int) (Blocks, []byte) {
					if rank == root {
						return b, b.scattered(size, block)
					}
					return Blocks{}, nil
				}, "gatherv, root %d, %s", root, what)
			}
		}
	}
}

func TestScatter(t *testing.T) {
	scatterv := func(s *Schedule, rank, size, root int, b Blocks) {
		mine := Blocks{}
		if rank == root {
			mine = b
		}
		Scatterv(s, rank, size, root, b.bytes(rank), mine)
	}
	algorithms := map[string]func(s *Schedule, rank, size, root int, b Blocks){
		"tree": func(s *Schedule, rank, size, root int, b Blocks) {
			gatherTree(s, rank, size, root, b.bytes(rank))
			s.mirror()
		},
		"linear": scatterv,
		"selected": func(s *Schedule, rank, size, root int, b Blocks) {
			Scatter(s, rank, size, root, b.bytes(rank))
		},
	}
	for name, algorithm := range algorithms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes() {
				for _, root := range roots(size) {
					for what, b := range layouts(size, size+root) {
						if name != "linear" && what != "even" || name == "linear" && size > 12 &&
							root%5 != size%5 {
							continue
						}
						block := func(rank int) []byte { return hop(root, rank, b.bytes(rank)) }
						j := job{
							size:  size,
							build: func(s *Schedule, rank int) { algorithm(s, rank, size, root, b) },
							input: func(rank int) []byte {
								if rank == root {
									return b.scattered(size, block)
								}
								return nil
							},
							output: b.bytes,
						}
						if (root+size/2)%2 == 0 {
							j.inPlace = func(rank int) (int, bool) {
								return b.span(Input, rank).Off,
									rank == root && size > 1
							}
						}
						expect(t, j, block, "scatter, root %d, %s", root, what)
					}
				}
			}
		})
	}
}

func TestAllgather(t *testing.T) {
	algorithms := map[string]func(s *Schedule, rank, size int, b Blocks){
		"bruck": allgatherBruck,
		"ring":  allgatherRing,
		"doubling": func(s *Schedule, rank, size int, b Blocks) {
			if b.Counts == nil && powerOfTwo(size) {
				allgatherDoubling(s, rank, size, b.ElemSize)
			} else {
				Allgatherv(s, rank, size, b)
			}
		},
		"selected": func(s *Schedule, rank, size int, b Blocks) {
			if b.Counts == nil {
				c := Call{Operation: OpAllgather, Rank: rank, Size: size, Count: b.ElemSize, ElemSize: 1}
				c.Build(s)
			} else {
				Allgatherv(s, rank, size, b)
			}
		},
	}
	for name, algorithm := range algorithms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(size, turn int, what string, b Blocks) {
				block := func(rank int) []byte { return pattern(rank, b.bytes(rank)) }
				want := b.scattered(size, block)
				j := job{
					size:   size,
					build:  func(s *Schedule, rank int) { algorithm(s, rank, size, b) },
					input:  block,
					output: func(int) int { return b.extent(size) },
				}
				if turn%2 == 0 {
					j.inPlace = func(rank int) (int, bool) { return b.span(Output, rank).Off, true }
				}
				expectBlocks(t, j, func(int) (Blocks, []byte) { return b, want }, "allgather, %s, turn %d",
					what, turn)
			}
			for _, size := range sizes() {
				for turn := range 3 {
					for what, b := range layouts(size, size+turn) {
						run(size, turn, what, b)
					}
				}
			}
			if name == "selected" {
				for _, size := range []int{1, 4, 6, 8} {
					for _, total := range []int{80 << 10, 512 << 10} {
						for more := range 2 {
							run(size, more, "large", even(total/size+more))
						}
					}
				}
			}
		})
	}
}

func TestAlltoall(t *testing.T) {
	algorithms := map[string]func(s *Schedule, rank, size, block int){
		"bruck": alltoallBruck,
		"pairwise": func(s *Schedule, rank, size, block int) {
			alltoallPairwise(s, rank, size, even(block), even(block), 1)
		},
		"pairwise, together": func(s *Schedule, rank, size, block int) {
			alltoallPairwise(s, rank, size, even(block), even(block), alltoallWindow)
		},
		"selected": Alltoall,
	}
	for name, algorithm := range algorithms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(size, n int) {
				j := job{
					size:  size,
					build: func(s *Schedule, rank int) { algorithm(s, rank, size, n) },
					input: func(rank int) (b []byte) {
						for to := range size {
							b = append(b, hop(rank, to, n)...)
						}
						return b
					},
					output: constant(size * n),
				}
				expect(t, j, func(rank int) (b []byte) {
					for from := range size {
						b = append(b, hop(from, rank, n)...)
					}
					return b
				}, "alltoall, %d bytes", n)
			}
			for _, size := range sizes() {
				for _, n := range some([]int{0, 1, 3, 8}, 2, size) {
					if size <= 65 || n < 8 {
						run(size, n)
					}
				}
			}
			if name == "selected" {
				for _, size := range []int{3, 8, 9} {
					for _, n := range []int{256, 257, 32 << 10, 32<<10 + 1} {
						run(size, n)
					}
				}
			}
		})
	}
}

func TestAlltoallv(t *testing.T) {
	for _, size := range sizes() {
		if size > 65 {
			continue
		}
		// A third of the messages are empty, whole ranks have nothing to say.
		length := func(from, to int) int {
			if (from*3+to)%3 == 0 || from%5 == 4 {
				return 0
			}
			return (from*5 + to*3) % 11
		}
		layout := func(rank int, elements func(rank, peer int) int) Blocks {
			b := Blocks{Counts: make([]int, size), Displs: make([]int, size), ElemSize: 2}
			at := 0
			for i := range size {
				peer := (i*(size-1) + rank) % size // backwards, from somewhere
				b.Counts[peer], b.Displs[peer] = elements(rank, peer), at+i%2
				at = b.Displs[peer] + b.Counts[peer]
			}
			return b
		}
		from := func(rank int) Blocks { return layout(rank, length) }
		to := func(rank int) Blocks {
			return layout(rank, func(rank,
				peer int) int {
				return length(peer, rank)
			})
		}
		j := job{
			size:  size,
			build: func(s *Schedule, rank int) { Alltoallv(s, rank, size, from(rank), to(rank)) },
			input: func(rank int) []byte {
				b := from(rank)
				return b.scattered(size, func(peer int) []byte { return hop(rank, peer, b.bytes(peer)) })
			},
			output: func(rank int) int { return to(rank).extent(size) },
		}
		expectBlocks(t, j, func(rank int) (Blocks, []byte) {
			b := to(rank)
			return b, b.scattered(size, func(peer int) []byte { return hop(peer, rank, b.bytes(peer)) })
		}, "alltoallv")
	}
}

func TestReduceScatter(t *testing.T) {
	algorithms := map[string]struct {
		ordered   bool
		algorithm func(s *Schedule, rank, size int, b Blocks, elemSize int)
	}{
		"doubling": {true, func(s *Schedule, rank, size int, b Blocks,
			_ int) {
			reduceScatterDoubling(s, rank, size, b)
		}},
		"halving": {false, func(s *Schedule, rank, size int, b Blocks,
			_ int) {
			reduceScatterHalving(s, rank, size, b)
		}},
		"pairwise": {true, func(s *Schedule, rank, size int, b Blocks,
			_ int) {
			reduceScatterPairwise(s, rank, size, b)
		}},
		"selected, commutative": {false, func(s *Schedule, rank, size int, b Blocks, elemSize int) {
			if b.Counts == nil {
				ReduceScatterBlock(s, rank, size, b.ElemSize/elemSize, elemSize, true)
			} else {
				ReduceScatter(s, rank, size, b.Counts, elemSize, true)
			}
		}},
		"selected, in order": {true, func(s *Schedule, rank, size int, b Blocks, elemSize int) {
			if b.Counts == nil {
				ReduceScatterBlock(s, rank, size, b.ElemSize/elemSize, elemSize, false)
			} else {
				ReduceScatter(s, rank, size, b.Counts, elemSize, false)
			}
		}},
	}
	for name, a := range algorithms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(size, turn int, what string, b Blocks) {
				op := concatenation
				if !a.ordered {
					op = addition(16)
				}
				total := b.before(size)
				result := sum(0, size, total)
				if a.ordered {
					result = ranges(0, size-1, 0, total/16)
				}
				j := job{
					size:  size,
					op:    op,
					build: func(s *Schedule, rank int) { a.algorithm(s, rank, size, b, 16) },
					input: func(rank int) []byte {
						if a.ordered {
							return ranges(rank, rank, 0, total/16)
						}
						return random(rank, total)
					},
					output: b.bytes,
				}
				if turn%2 == 0 {
					j.inPlace = func(rank int) (int, bool) { return 0, true }
				}
				expect(t, j, func(rank int) []byte {
					return result[b.before(rank) : b.before(rank)+b.bytes(rank)]
				}, "reduce-scatter, %s, turn %d", what, turn)
			}
			for _, size := range sizes() {
				for turn := range 2 {
					run(size, turn, "even", even(16*((size+turn)%4)))
					run(size, turn+size, "uneven", Blocks{Counts: uneven(size, size+turn).Counts,
						ElemSize: 16})
				}
			}
			if name == "selected, commutative" || name == "selected, in order" {
				for _, size := range []int{2, 5} {
					for _, total := range []int{512, 512 << 10} {
						for more := range 2 {
							run(size, more, "large", even((total/16/size+more)*16))
						}
					}
				}
			}
		})
	}
}

func TestScan(t *testing.T) {
	for name, algorithm := range map[string]func(s *Schedule, rank, size, count, elemSize int){
		"inclusive": Scan,
		"exclusive": Exscan,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes() {
				for turn, count := range reductionCounts {
					j := job{
						size:  size,
						op:    concatenation,
						build: func(s *Schedule, rank int) { algorithm(s, rank, size, count, 16) },
						input: func(rank int) []byte { return ranges(rank, rank, 0, count) },
						output: func(rank int) int {
							if rank == 0 && name == "exclusive" {
								return 0
							}
							return count * 16
						},
					}
					if turn%2 == 0 {
						j.inPlace = func(rank int) (int, bool) { return 0, rank > 0 || name == "inclusive" }
					}
					expect(t, j, func(rank int) []byte {
						switch {
						case name == "inclusive":
							return ranges(0, rank, 0, count)
						case rank > 0:
							return ranges(0, rank-1, 0, count)
						}
						return nil
					}, "%s, %d elements", name, count)
				}
			}
		})
	}
}
