package main

import "github.com/weft-mpi/weft/mpi"

// halo exchanges the edges of the rank's block with the ranks around it.
type halo struct {
	torus   *torus
	block   *block
	columns edges // exchanged with the ranks to the left and to the right
	rows    edges // exchanged with the ranks above and below
}

// edges are the buffers of a NeighborAlltoall along one dimension: the first half is for the lower neighbor,
// or from it, and the second half for the upper one.
type edges struct{ out, in []uint8 }

func newEdges(length int) edges { return edges{make([]uint8, 2*length), make([]uint8, 2*length)} }

func newHalo(t *torus, b *block) *halo {
	return &halo{t, b, newEdges(b.height), newEdges(b.width + 2)}
}

// exchange fills the margin.
func (h *halo) exchange() error {
	b := h.block
	right := b.width // the last column without the margin
	out, in := h.columns.out, h.columns.in
	for y := range b.height {
		r := row(b.now, b, y)
		out[y], out[b.height+y] = r[1], r[right]
	}
	if err := mpi.NeighborAlltoall(h.torus.row, out, in); err != nil {
		return err
	}
	for y := range b.height {
		r := row(b.now, b, y)
		r[0], r[right+1] = in[y], in[b.height+y]
	}

	// The rows go with their margin, which has just come: its cells belong to the ranks beside, so these rows
	// bring the corners.
	out, in = h.rows.out, h.rows.in
	stride := b.width + 2
	copy(out[:stride], row(b.now, b, 0))
	copy(out[stride:], row(b.now, b, b.height-1))
	if err := mpi.NeighborAlltoall(h.torus.column, out, in); err != nil {
		return err
	}
	copy(row(b.now, b, -1), in[:stride])
	copy(row(b.now, b, b.height), in[stride:])
	return nil
}
