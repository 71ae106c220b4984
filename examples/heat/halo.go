package main

import "github.com/weft-mpi/weft/mpi"

// The tags of the messages: the way that an edge travels.
const (
	up = iota
	down
	left
	right
)

// halo exchanges the edges of a rank's block with its neighbors': what it receives goes to the margin around
// the block.
type halo struct {
	world                    *mpi.Comm
	block                    *plate
	above, below, west, east int // the neighbors' ranks
	toWest, toEast           []float64
	fromWest, fromEast       []float64
	requests                 []mpi.Request
}

// message is one edge on its way.
type message struct {
	buf       []float64
	peer, tag int
}

func newHalo(world *mpi.Comm, p problem, block *plate) *halo {
	column := func() []float64 { return make([]float64, block.height) }
	return &halo{
		world: world, block: block,
		above: p.neighbor(world.Rank(), 0, -1), below: p.neighbor(world.Rank(), 0, 1),
		west: p.neighbor(world.Rank(), -1, 0), east: p.neighbor(world.Rank(), 1, 0),
		toWest: column(), toEast: column(), fromWest: column(), fromEast: column(),
	}
}

// begin starts the exchange. Until end the edges may be read, but not written, and the margin not even read.
//
// A row lies in one piece in memory: it is sent from where it is, and received where it belongs. The cells of
// a column lie a row apart: they are packed into a buffer, and unpacked by end.
func (h *halo) begin() error {
	b := h.block
	for y := range b.height {
		h.toWest[y], h.toEast[y] = b.now[b.at(0, y)], b.now[b.at(b.width-1, y)]
	}
	// Receives go first, so that a message that comes finds its buffer.
	h.requests = h.requests[:0]
	for _, m := range [...]message{
		{b.row(-1), h.above, down}, {b.row(b.height), h.below, up}, {h.fromWest, h.west, right},
		{h.fromEast, h.east, left},
	} {
		r, err := mpi.Irecv(h.world, m.buf, m.peer, m.tag)
		if err != nil {
			return err
		}
		h.requests = append(h.requests, r)
	}
	for _, m := range [...]message{
		{b.row(0), h.above, up}, {b.row(b.height - 1), h.below, down}, {h.toWest, h.west, left},
		{h.toEast, h.east, right},
	} {
		r, err := mpi.Isend(h.world, m.buf, m.peer, m.tag)
		if err != nil {
			return err
		}
		h.requests = append(h.requests, r)
	}
	return nil
}

// end waits for the exchange. Beyond the plate nothing was received, and the margin stays as it is.
func (h *halo) end() error {
	if err := mpi.Waitall(h.requests); err != nil {
		return err
	}
	b := h.block
	for y := range b.height {
		if h.west != mpi.ProcNull {
			b.now[b.at(-1, y)] = h.fromWest[y]
		}
		if h.east != mpi.ProcNull {
			b.now[b.at(b.width, y)] = h.fromEast[y]
		}
	}
	return nil
}
