package layout

import "unsafe"

// Cursor copies the bytes of a layout of some memory, in pieces. Those that follow one another cost least.
type Cursor struct {
	Layout *Layout
	Memory unsafe.Pointer

	// of a list: a range, and the position where it begins
	entry, begins int
}

// Gather copies the bytes from a position on to dst.
func (c *Cursor) Gather(at int, dst []byte) { c.move(at, dst, false) }

// Scatter copies src to the bytes from a position on.
func (c *Cursor) Scatter(at int, src []byte) { c.move(at, src, true) }

func (c *Cursor) move(at int, flat []byte, scatter bool) {
	if len(flat) == 0 {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(flat))
	if !c.Layout.list {
		c.Layout.moveBlocks(c.Memory, at, p, len(flat), scatter)
		return
	}
	l := c.Layout
	switch {
	case l.length == nil || l.ends != nil:
		c.entry, c.begins = l.find(at)
	case at < c.begins:
		c.entry, c.begins = 0, 0
	}
	c.entry, c.begins = l.moveList(c.Memory, c.entry, c.begins, at, p, len(flat), scatter)
}

// moveBy is a Cursor's move without one.
func (l *Layout) moveBy(mem unsafe.Pointer, at int, flat unsafe.Pointer, n int, scatter bool) {
	if !l.list {
		l.moveBlocks(mem, at, flat, n, scatter)
		return
	}
	entry, begins := l.find(at)
	l.moveList(mem, entry, begins, at, flat, n, scatter)
}

// moveList copies n bytes from a position on, which is in a range or after it. It gives the range in which
// the last byte is, and where that begins.
func (l *Layout) moveList(mem unsafe.Pointer, entry, begins, at int, flat unsafe.Pointer, n int,
	scatter bool) (int, int) {
	if l.length == nil && l.of == nil && at == begins && n%l.size == 0 {
		if l.moveElements(mem, l.at[entry:][:n/l.size], flat, scatter) {
			return entry, begins
		}
	}
	for {
		length := l.lengthOf(entry)
		if m := min(begins+length-at, n); m > 0 {
			l.moveSpan(mem, l.start+l.at[entry]*l.size+at-begins, flat, m, scatter)
			at, n = at+m, n-m
			if n == 0 {
				return entry, begins
			}
			flat = unsafe.Add(flat, m)
		}
		begins += length
		entry++
	}
}

// moveElements copies elements of a list of single ones, if they have a size that there is a loop for.
func (l *Layout) moveElements(mem unsafe.Pointer, at []int, flat unsafe.Pointer, scatter bool) bool {
	mem = unsafe.Add(mem, l.start)
	switch l.size {
	case 1:
		elements[uint8](mem, at, flat, scatter)
	case 2:
		elements[uint16](mem, at, flat, scatter)
	case 4:
		elements[uint32](mem, at, flat, scatter)
	case 8:
		elements[uint64](mem, at, flat, scatter)
	case 16:
		elements[[2]uint64](mem, at, flat, scatter)
	default:
		return false
	}
	return true
}

func elements[W any](mem unsafe.Pointer, at []int, flat unsafe.Pointer, scatter bool) {
	list := unsafe.Slice((*W)(flat), len(at))
	size := int(unsafe.Sizeof(list[0]))
	if scatter {
		for i, from := range at {
			*(*W)(unsafe.Add(mem, from*size)) = list[i]
		}
		return
	}
	for i, from := range at {
		list[i] = *(*W)(unsafe.Add(mem, from*size))
	}
}

// moveSpan copies n bytes that lie together in what l selects from.
func (l *Layout) moveSpan(mem unsafe.Pointer, offset int, flat unsafe.Pointer, n int, scatter bool) {
	if l.of != nil {
		l.of.moveBy(mem, offset, flat, n, scatter)
		return
	}
	there, here := unsafe.Slice((*byte)(unsafe.Add(mem, offset)), n), unsafe.Slice((*byte)(flat), n)
	if scatter {
		copy(there, here)
	} else {
		copy(here, there)
	}
}

// moveBlocks copies n bytes from a position on, of a layout that is no list.
func (l *Layout) moveBlocks(mem unsafe.Pointer, at int, flat unsafe.Pointer, n int, scatter bool) {
	if l.depth == 0 {
		l.moveSpan(mem, l.start+at, flat, n, scatter)
		return
	}
	dims := l.dims()
	last := len(dims) - 1
	var index [maxDims]int // of the part in which the position is, in each dimension
	inBlock := 0
	if at > 0 {
		inBlock = at % l.block
		at /= l.block
		for i := last; i >= 0; i-- {
			index[i] = at % dims[i].count
			at /= dims[i].count
		}
	}
	for {
		offset := l.start
		for i, d := range dims {
			offset += index[i] * d.stride
		}
		count := min(dims[last].count-index[last], n/l.block)
		switch {
		case inBlock > 0 || n < l.block:
			m := min(l.block-inBlock, n)
			l.moveSpan(mem, offset+inBlock, flat, m, scatter)
			n, count, inBlock = n-m, 1, 0
			if n == 0 {
				return
			}
			flat = unsafe.Add(flat, m)
		default:
			l.moveRow(mem, offset, count, dims[last].stride, flat, scatter)
			if n -= count * l.block; n == 0 {
				return
			}
			flat = unsafe.Add(flat, count*l.block)
		}
		index[last] += count
		for i := last; index[i] == dims[i].count && i > 0; i-- {
			index[i] = 0
			index[i-1]++
		}
	}
}

// moveRow copies whole blocks at equal distances.
func (l *Layout) moveRow(mem unsafe.Pointer, offset, count, stride int, flat unsafe.Pointer, scatter bool) {
	if l.of == nil {
		switch l.block {
		case 1:
			row[uint8](mem, offset, count, stride, flat, scatter)
			return
		case 2:
			row[uint16](mem, offset, count, stride, flat, scatter)
			return
		case 4:
			row[uint32](mem, offset, count, stride, flat, scatter)
			return
		case 8:
			row[uint64](mem, offset, count, stride, flat, scatter)
			return
		case 16:
			row[[2]uint64](mem, offset, count, stride, flat, scatter)
			return
		}
	}
	for i := range count {
		l.moveSpan(mem, offset, unsafe.Add(flat, i*l.block), l.block, scatter)
		offset += stride
	}
}

func row[W any](mem unsafe.Pointer, offset, count, stride int, flat unsafe.Pointer, scatter bool) {
	list := unsafe.Slice((*W)(flat), count)
	if scatter {
		for i := range list {
			*(*W)(unsafe.Add(mem, offset)) = list[i]
			offset += stride
		}
		return
	}
	for i := range list {
		list[i] = *(*W)(unsafe.Add(mem, offset))
		offset += stride
	}
}
