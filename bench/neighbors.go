package bench

import "github.com/weft-mpi/weft/mpi"

// The neighbor collectives run on a periodic ring of the ranks, a Cart of one dimension, as OSU's do by
// default. Each rank has two neighbors, which are the same for two ranks.
const ringNeighbors = 2

// twoBlocks returns the number of blocks: a message of each neighbor.
func twoBlocks(Options, int, int) int { return ringNeighbors }

// ring makes the topology, once.
func (s *session) ring() (*mpi.Cart, error) {
	if s.cart == nil {
		cart, err := s.world.Cart([]int{s.world.Size()}, []bool{true}, false)
		if err != nil {
			return nil, err
		}
		s.cart = cart
	}
	return s.cart, nil
}

// onRing measures an operation on the ring.
func onRing(of func(s *session, ring *mpi.Cart, n int) operation) func(*session, int) operation {
	return func(s *session, n int) operation {
		ring, err := s.ring()
		if err != nil {
			return operation{
				fill:  func(int) {},
				call:  func() error { return err },
				start: func() (mpi.Request, error) { return mpi.Request{}, err },
			}
		}
		return of(s, ring, n)
	}
}

// compareNeighbors compares the messages of both neighbors with those of these numbers.
func (s *session) compareNeighbors(out []byte, n, below, above int) {
	size := s.world.Size()
	s.compareMessage(out[:n], (s.world.Rank()-1+size)%size, below)
	s.compareMessage(out[n:2*n], (s.world.Rank()+1)%size, above)
}

func neighborAllgather(s *session, ring *mpi.Cart, n int) operation {
	in, out := s.send[:n], s.recv[:ringNeighbors*n]
	return operation{
		fill:    func(i int) { s.pattern(in, s.world.Rank(), i) },
		call:    func() error { return mpi.NeighborAllgather(ring, in, out) },
		start:   func() (mpi.Request, error) { return mpi.IneighborAllgather(ring, in, out) },
		compare: func(i int) { s.compareNeighbors(out, n, i, i) },
	}
}

func neighborAllgatherv(s *session, ring *mpi.Cart, n int) operation {
	o := neighborAllgather(s, ring, n)
	in, out := s.send[:n], s.recv[:ringNeighbors*n]
	counts, displs := []int{n, n}, []int{0, n}
	o.call = func() error { return mpi.NeighborAllgatherv(ring, in, out, counts, displs) }
	o.start = func() (mpi.Request, error) { return mpi.IneighborAllgatherv(ring, in, out, counts, displs) }
	return o
}

// neighborAlltoall receives from above what is sent downwards.
func neighborAlltoall(s *session, ring *mpi.Cart, n int) operation {
	in, out := s.send[:ringNeighbors*n], s.recv[:ringNeighbors*n]
	return operation{
		fill: func(i int) {
			s.pattern(in[:n], s.world.Rank(), ringNeighbors*i)
			s.pattern(in[n:], s.world.Rank(), ringNeighbors*i+1)
		},
		call:    func() error { return mpi.NeighborAlltoall(ring, in, out) },
		start:   func() (mpi.Request, error) { return mpi.IneighborAlltoall(ring, in, out) },
		compare: func(i int) { s.compareNeighbors(out, n, ringNeighbors*i+1, ringNeighbors*i) },
	}
}

func neighborAlltoallv(s *session, ring *mpi.Cart, n int) operation {
	o := neighborAlltoall(s, ring, n)
	in, out := s.send[:ringNeighbors*n], s.recv[:ringNeighbors*n]
	counts, displs := []int{n, n}, []int{0, n}
	o.call = func() error { return mpi.NeighborAlltoallv(ring, in, counts, displs, out, counts, displs) }
	o.start = func() (mpi.Request, error) {
		return mpi.IneighborAlltoallv(ring, in, counts, displs, out, counts, displs)
	}
	return o
}
