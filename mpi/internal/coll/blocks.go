package coll

// Blocks tells where the block of each rank lies in a buffer, in elements of ElemSize bytes, as the count and displacement
// arrays of the v-collectives do. Blocks that are written must not overlap. Without Counts every block is ElemSize
// bytes, one behind the other; without Displs blocks of different lengths are, too.
type Blocks struct {
	Counts, Displs []int
	ElemSize       int
}

// even are blocks of so many bytes each.
func even(bytes int) Blocks {
	return Blocks{ElemSize: bytes}
}

func (b Blocks) bytes(rank int) int {
	if b.Counts == nil {
		return b.ElemSize
	}
	return b.Counts[rank] * b.ElemSize
}

// before is the length of the blocks of all ranks below this one.
func (b Blocks) before(rank int) int {
	if b.Counts == nil {
		return rank * b.ElemSize
	}
	elements := 0
	for _, n := range b.Counts[:rank] {
		elements += n
	}
	return elements * b.ElemSize
}

func (b Blocks) span(buf Buffer, rank int) Span {
	if b.Displs == nil {
		return Span{buf, b.before(rank), b.bytes(rank)}
	}
	return Span{buf, b.Displs[rank] * b.ElemSize, b.bytes(rank)}
}
