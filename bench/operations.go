package bench

import (
	"unsafe"

	"github.com/weft-mpi/weft/mpi"
)

// The collectives, each on messages of n bytes; root is rank 0.
const root = 0

// allAtRoot returns the number of messages: one of every rank, at the root.
func allAtRoot(_ Options, rank, ranks int) int {
	if rank == root {
		return ranks
	}
	return 0
}

// allEverywhere returns the number of messages: one of every rank, at every rank.
func allEverywhere(_ Options, _, ranks int) int { return ranks }

// evenly returns the counts and displacements of blocks of n elements, one for each rank.
func (s *session) evenly(n int) (counts, displs []int) {
	for r := range s.world.Size() {
		counts, displs = append(counts, n), append(displs, r*n)
	}
	return counts, displs
}

// fillBlocks fills the blocks of n bytes in out, one for each rank, all different.
func (s *session) fillBlocks(out []byte, n, i int) {
	for r := range len(out) / n {
		s.pattern(out[r*n:][:n], s.world.Rank(), i*s.world.Size()+r)
	}
}

// compareBlocks compares the blocks of n bytes in in, one from each rank, with the ranks' messages number
// sequence.
func (s *session) compareBlocks(in []byte, n, sequence int) {
	for r := range len(in) / n {
		s.compareMessage(in[r*n:][:n], r, sequence)
	}
}

func broadcast(s *session, n int) operation {
	buf := s.send[:n]
	return operation{
		fill: func(i int) {
			if s.world.Rank() == root {
				s.pattern(buf, root, i)
			}
		},
		call:  func() error { return mpi.Bcast(s.world, buf, root) },
		start: func() (mpi.Request, error) { return mpi.Ibcast(s.world, buf, root) },
		compare: func(i int) {
			if s.world.Rank() != root {
				s.compareMessage(buf, root, i)
			}
		},
	}
}

func gather(s *session, n int) operation {
	in, out := s.send[:n], s.recv[:n*allAtRoot(s.Options, s.world.Rank(), s.world.Size())]
	return operation{
		fill:    func(i int) { s.pattern(in, s.world.Rank(), i) },
		call:    func() error { return mpi.Gather(s.world, in, out, root) },
		start:   func() (mpi.Request, error) { return mpi.Igather(s.world, in, out, root) },
		compare: func(i int) { s.compareBlocks(out, n, i) },
	}
}

func gatherv(s *session, n int) operation {
	o := gather(s, n)
	in, out := s.send[:n], s.recv[:n*allAtRoot(s.Options, s.world.Rank(), s.world.Size())]
	counts, displs := s.evenly(n)
	o.call = func() error { return mpi.Gatherv(s.world, in, out, counts, displs, root) }
	o.start = func() (mpi.Request, error) { return mpi.Igatherv(s.world, in, out, counts, displs, root) }
	return o
}

func scatter(s *session, n int) operation {
	in, out := s.send[:n*allAtRoot(s.Options, s.world.Rank(), s.world.Size())], s.recv[:n]
	return operation{
		fill:    func(i int) { s.fillBlocks(in, n, i) },
		call:    func() error { return mpi.Scatter(s.world, in, out, root) },
		start:   func() (mpi.Request, error) { return mpi.Iscatter(s.world, in, out, root) },
		compare: func(i int) { s.compareMessage(out, root, i*s.world.Size()+s.world.Rank()) },
	}
}

func scatterv(s *session, n int) operation {
	o := scatter(s, n)
	in, out := s.send[:n*allAtRoot(s.Options, s.world.Rank(), s.world.Size())], s.recv[:n]
	counts, displs := s.evenly(n)
	o.call = func() error { return mpi.Scatterv(s.world, in, counts, displs, out, root) }
	o.start = func() (mpi.Request, error) { return mpi.Iscatterv(s.world, in, counts, displs, out, root) }
	return o
}

func allgather(s *session, n int) operation {
	in, out := s.send[:n], s.recv[:n*s.world.Size()]
	return operation{
		fill:    func(i int) { s.pattern(in, s.world.Rank(), i) },
		call:    func() error { return mpi.Allgather(s.world, in, out) },
		start:   func() (mpi.Request, error) { return mpi.Iallgather(s.world, in, out) },
		compare: func(i int) { s.compareBlocks(out, n, i) },
	}
}

func allgatherv(s *session, n int) operation {
	o := allgather(s, n)
	in, out := s.send[:n], s.recv[:n*s.world.Size()]
	counts, displs := s.evenly(n)
	o.call = func() error { return mpi.Allgatherv(s.world, in, out, counts, displs) }
	o.start = func() (mpi.Request, error) { return mpi.Iallgatherv(s.world, in, out, counts, displs) }
	return o
}

func alltoall(s *session, n int) operation {
	in, out := s.send[:n*s.world.Size()], s.recv[:n*s.world.Size()]
	return operation{
		fill:    func(i int) { s.fillBlocks(in, n, i) },
		call:    func() error { return mpi.Alltoall(s.world, in, out) },
		start:   func() (mpi.Request, error) { return mpi.Ialltoall(s.world, in, out) },
		compare: func(i int) { s.compareBlocks(out, n, i*s.world.Size()+s.world.Rank()) },
	}
}

func alltoallv(s *session, n int) operation {
	o := alltoall(s, n)
	in, out := s.send[:n*s.world.Size()], s.recv[:n*s.world.Size()]
	counts, displs := s.evenly(n)
	o.call = func() error { return mpi.Alltoallv(s.world, in, counts, displs, out, counts, displs) }
	o.start = func() (mpi.Request, error) {
		return mpi.Ialltoallv(s.world, in, counts, displs, out, counts,
			displs)
	}
	return o
}

func reduce(s *session, n int) operation {
	in, out, op := floats(s.send[:n]), floats(s.recv[:n]), mpi.Sum[float32]()
	return operation{
		fill:  func(i int) { s.fillFloats(in, i) },
		call:  func() error { return mpi.Reduce(s.world, in, out, op, root) },
		start: func() (mpi.Request, error) { return mpi.Ireduce(s.world, in, out, op, root) },
		compare: func(i int) {
			if s.world.Rank() == root {
				s.compareSum(out, 0, s.world.Size(), i)
			}
		},
	}
}

func allreduce(s *session, n int) operation {
	in, out, op := floats(s.send[:n]), floats(s.recv[:n]), mpi.Sum[float32]()
	return operation{
		fill:    func(i int) { s.fillFloats(in, i) },
		call:    func() error { return mpi.Allreduce(s.world, in, out, op) },
		start:   func() (mpi.Request, error) { return mpi.Iallreduce(s.world, in, out, op) },
		compare: func(i int) { s.compareSum(out, 0, s.world.Size(), i) },
	}
}

// reduceScatter distributes the sums of n bytes over the ranks, as evenly as whole elements allow.
func reduceScatter(s *session, n int) operation {
	in, op := floats(s.send[:n]), mpi.Sum[float32]()
	var counts []int
	first, size := 0, s.world.Size()
	for r := range size {
		counts = append(counts, (r+1)*len(in)/size-r*len(in)/size)
		if r < s.world.Rank() {
			first += counts[r]
		}
	}
	out := floats(s.recv[:4*counts[s.world.Rank()]])
	return operation{
		fill:    func(i int) { s.fillFloats(in, i) },
		call:    func() error { return mpi.ReduceScatter(s.world, in, out, counts, op) },
		start:   func() (mpi.Request, error) { return mpi.IreduceScatter(s.world, in, out, counts, op) },
		compare: func(i int) { s.compareSum(out, first, s.world.Size(), i) },
	}
}

// reduceScatterBlock stores n bytes of the sums at each rank.
func reduceScatterBlock(s *session, n int) operation {
	in, out, op := floats(s.send[:n*s.world.Size()]), floats(s.recv[:n]), mpi.Sum[float32]()
	return operation{call: func() error { return mpi.ReduceScatterBlock(s.world, in, out, op) }}
}

func scan(s *session, n int) operation {
	in, out, op := floats(s.send[:n]), floats(s.recv[:n]), mpi.Sum[float32]()
	return operation{
		fill:    func(i int) { s.fillFloats(in, i) },
		call:    func() error { return mpi.Scan(s.world, in, out, op) },
		start:   func() (mpi.Request, error) { return mpi.Iscan(s.world, in, out, op) },
		compare: func(i int) { s.compareSum(out, 0, s.world.Rank()+1, i) },
	}
}

func exscan(s *session, n int) operation {
	in, out, op := floats(s.send[:n]), floats(s.recv[:n]), mpi.Sum[float32]()
	return operation{call: func() error { return mpi.Exscan(s.world, in, out, op) }}
}

// floats returns b, which begins at a page, as float32.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
