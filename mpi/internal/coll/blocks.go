package coll

// Blocks describes where the block of each rank lies in a buffer, in elements of ElemSize bytes, as the count
// and displacement arrays of the v-collectives do. Blocks that are written must not overlap. Without Counts
// every block has ElemSize bytes. Without Displs the blocks are consecutive.
type Blocks struct {
	Counts, Displs []int
	ElemSize       int
}

// even returns consecutive blocks of equal length.
func even(bytes int) Blocks {
	return Blocks{ElemSize: bytes}
}

// Even returns consecutive blocks of equal length.
func Even(bytes int) *Blocks { b := even(bytes); return &b }

// orNone returns the blocks, or none if b is nil, as where they are not significant.
func (b *Blocks) orNone() Blocks {
	if b == nil {
		return Blocks{}
	}
	return *b
}

func (b Blocks) bytes(rank int) int {
	if b.Counts == nil {
		return b.ElemSize
	}
	return b.Counts[rank] * b.ElemSize
}

// before returns the length of the blocks of all ranks below a rank.
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

// Parts returns the parts of a buffer that the blocks cover: all of it without Counts.
func (b *Blocks) Parts(buf []byte) (parts [][]byte) {
	switch {
	case len(buf) == 0:
		return nil
	case b == nil || b.Counts == nil:
		return [][]byte{buf}
	case b.Displs == nil:
		if n := b.before(len(b.Counts)); n > 0 {
			parts = append(parts, buf[:n])
		}
		return parts
	}
	end := 0 // of the latest part
	for rank := range b.Counts {
		s := b.span(Output, rank)
		switch {
		case s.Len == 0:
			continue
		case len(parts) > 0 && s.Off == end: // contiguous with it
			last := &parts[len(parts)-1]
			*last = buf[end-len(*last) : end+s.Len]
		default:
			parts = append(parts, buf[s.Off:][:s.Len])
		}
		end = s.Off + s.Len
	}
	return parts
}

// longest returns the length of the longest block.
func (b Blocks) longest(size int) (n int) {
	for rank := range size {
		n = max(n, b.bytes(rank))
	}
	return n
}

// extent returns the length of a buffer that holds the blocks.
func (b Blocks) extent(size int) (n int) {
	for rank := range size {
		s := b.span(Output, rank)
		n = max(n, s.Off+s.Len)
	}
	return n
}
