package layout

import "unsafe"

// Cursor copies the bytes of a layout in pieces. Consecutive pieces are fastest.
type Cursor struct {
	Layout *Layout
	Memory unsafe.Pointer

	// of a list: a range, and the position where it begins
	entry, begins int
}

// Gather fills dst with the bytes from a position on.
func (c *Cursor) Gather(at int, dst []byte) {
	if at == 0 && (c.Layout.more == nil || len(dst) == c.Layout.n) {
		c.Layout.Gather(c.Memory, dst)
		return
	}
	c.move(at, dst, false)
}

// Scatter copies src to the bytes from a position on.
func (c *Cursor) Scatter(at int, src []byte) {
	if at == 0 && (c.Layout.more == nil || len(src) == c.Layout.n) {
		c.Layout.Scatter(c.Memory, src)
		return
	}
	c.move(at, src, true)
}

func (c *Cursor) move(at int, flat []byte, scatter bool) {
	if len(flat) == 0 {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(flat))
	l := c.Layout
	list := l.list()
	switch {
	case list == nil:
		l.moveBlocks(c.Memory, at, p, len(flat), scatter)
		return
	case list.length == nil || list.ends != nil:
		c.entry, c.begins = list.find(at)
	case at < c.begins:
		c.entry, c.begins = 0, 0
	}
	c.entry, c.begins = l.moveList(c.Memory, c.entry, c.begins, at, p, len(flat), scatter)
}

// Gather copies the first bytes of the layout to dst.
func (l *Layout) Gather(mem unsafe.Pointer, dst []byte) {
	to, words := unsafe.Pointer(unsafe.SliceData(dst)), len(dst)%8 == 0
	if l.more != nil {
		if list := l.more.list; words && list.isOf(8) && l.more.of == nil {
			elements[uint64](unsafe.Add(mem, l.start), list.at[:len(dst)/8], list.step, to, false)
			return
		}
	} else if words && l.block == 8 { // most columns
		offset, stride := l.start, l.stride
		for at := 0; at < len(dst); at += 8 {
			*(*uint64)(unsafe.Add(to, at)) = *(*uint64)(unsafe.Add(mem, offset))
			offset += stride
		}
		return
	} else if l.n == l.block {
		copy(dst, unsafe.Slice((*byte)(unsafe.Add(mem, l.start)), len(dst)))
		return
	}
	switch {
	case l.more == nil && len(dst) == l.n:
		l.moveGrid(mem, l.start, 1, 0, l.n/l.block, l.stride, to, false)
	case len(dst) > 0:
		l.moveBy(mem, 0, to, len(dst), false)
	}
}

// Scatter copies src to the first bytes of the layout.
func (l *Layout) Scatter(mem unsafe.Pointer, src []byte) {
	from, words := unsafe.Pointer(unsafe.SliceData(src)), len(src)%8 == 0
	if l.more != nil {
		if list := l.more.list; words && list.isOf(8) && l.more.of == nil {
			elements[uint64](unsafe.Add(mem, l.start), list.at[:len(src)/8], list.step, from, true)
			return
		}
	} else if words && l.block == 8 {
		offset, stride := l.start, l.stride
		for at := 0; at < len(src); at += 8 {
			*(*uint64)(unsafe.Add(mem, offset)) = *(*uint64)(unsafe.Add(from, at))
			offset += stride
		}
		return
	} else if l.n == l.block {
		copy(unsafe.Slice((*byte)(unsafe.Add(mem, l.start)), len(src)), src)
		return
	}
	switch {
	case l.more == nil && len(src) == l.n:
		l.moveGrid(mem, l.start, 1, 0, l.n/l.block, l.stride, from, true)
	case len(src) > 0:
		l.moveBy(mem, 0, from, len(src), true)
	}
}

// moveBy is Cursor.move without a Cursor.
func (l *Layout) moveBy(mem unsafe.Pointer, at int, flat unsafe.Pointer, n int, scatter bool) {
	list := l.list()
	if list == nil {
		l.moveBlocks(mem, at, flat, n, scatter)
		return
	}
	entry, begins := list.find(at)
	l.moveList(mem, entry, begins, at, flat, n, scatter)
}

// moveList copies n bytes from a position on, which is in the range entry or after it. It returns the range
// of the last byte, and the position where that range begins.
func (l *Layout) moveList(mem unsafe.Pointer, entry, begins, at int, flat unsafe.Pointer, n int,
	scatter bool) (int, int) {
	p := l.more.list
	for {
		if p.length == nil && at == begins && n >= p.size {
			k := n / p.size
			if l.moveElements(mem, p.at[entry:][:k], flat, scatter) {
				entry, begins = entry+k-1, begins+(k-1)*p.size
				at, n = at+k*p.size, n-k*p.size
				if n == 0 {
					return entry, begins
				}
				flat = unsafe.Add(flat, k*p.size)
			}
		}
		length := p.lengthOf(entry)
		if m := min(begins+length-at, n); m > 0 {
			l.moveSpan(mem, l.start+p.at[entry]*p.step+at-begins, flat, m, scatter)
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

// moveElements copies entries of a list of single elements, if there is a loop for their size, and the list
// selects from memory or from another list of single elements. It reports whether it has.
func (l *Layout) moveElements(mem unsafe.Pointer, at []int, flat unsafe.Pointer, scatter bool) bool {
	list := l.more.list
	if of := l.more.of; of != nil {
		if !of.listsElements(list.size) || l.start%list.size != 0 || list.step%list.size != 0 {
			return false
		}
		return of.moveListed(mem, at, l.start/list.size, list.step/list.size, len(at), flat, scatter)
	}
	mem = unsafe.Add(mem, l.start)
	step := list.step
	switch list.size {
	case 1:
		elements[uint8](mem, at, step, flat, scatter)
	case 2:
		elements[uint16](mem, at, step, flat, scatter)
	case 4:
		elements[uint32](mem, at, step, flat, scatter)
	case 8:
		elements[uint64](mem, at, step, flat, scatter)
	case 12:
		elements[[3]uint32](mem, at, step, flat, scatter)
	case 16:
		elements[[2]uint64](mem, at, step, flat, scatter)
	case 24:
		elements[[3]uint64](mem, at, step, flat, scatter)
	case 32:
		elements[[4]uint64](mem, at, step, flat, scatter)
	default:
		return false
	}
	return true
}

func elements[W any](mem unsafe.Pointer, at []int, step int, flat unsafe.Pointer, scatter bool) {
	size := int(unsafe.Sizeof(*(*W)(nil)))
	if scatter {
		for i, from := range at {
			*(*W)(unsafe.Add(mem, from*step)) = *(*W)(unsafe.Add(flat, i*size))
		}
		return
	}
	for i, from := range at {
		*(*W)(unsafe.Add(flat, i*size)) = *(*W)(unsafe.Add(mem, from*step))
	}
}

// isOf reports whether a list, which may be nil, is of single elements of a size.
func (l *list) isOf(size int) bool { return l != nil && l.length == nil && l.size == size }

// listsElements reports whether l is a list of single elements of memory, of a size.
func (l *Layout) listsElements(size int) bool { return l.list().isOf(size) && l.more.of == nil }

// moveListed copies count entries of a list of single elements: those at first + at[i]*step, or, if at is
// nil, at first + i*step.
func (l *Layout) moveListed(mem unsafe.Pointer, at []int, first, step, count int, flat unsafe.Pointer,
	scatter bool) bool {
	mem = unsafe.Add(mem, l.start)
	list := l.more.list
	switch list.size {
	case 4:
		listed[uint32](mem, list, at, first, step, count, flat, scatter)
	case 8:
		listed[uint64](mem, list, at, first, step, count, flat, scatter)
	default:
		return false
	}
	return true
}

func listed[W any](mem unsafe.Pointer, from *list, at []int, first, step, count int, flat unsafe.Pointer,
	scatter bool) {
	list := unsafe.Slice((*W)(flat), count)
	for i := range list {
		k := i
		if at != nil {
			k = at[i]
		}
		p := (*W)(unsafe.Add(mem, from.at[first+k*step]*from.step))
		if scatter {
			*p = list[i]
		} else {
			list[i] = *p
		}
	}
}

// moveSpan copies n bytes that are contiguous in what l selects from.
func (l *Layout) moveSpan(mem unsafe.Pointer, offset int, flat unsafe.Pointer, n int, scatter bool) {
	if of := l.of(); of != nil {
		of.moveBy(mem, offset, flat, n, scatter)
		return
	}
	from, to := unsafe.Add(mem, offset), flat
	if scatter {
		from, to = to, from
	}
	if n <= fewWords*8 && n%8 == 0 { // copy would take longer to begin
		source, target := unsafe.Slice((*uint64)(from), n/8), unsafe.Slice((*uint64)(to), n/8)
		for i, w := range source[:len(target)] {
			target[i] = w
		}
		return
	}
	copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
}

// fewWords is the number of words up to which a loop copies.
const fewWords = 4

// moveBlocks copies n bytes from a position on, of a layout without a list.
func (l *Layout) moveBlocks(mem unsafe.Pointer, at int, flat unsafe.Pointer, n int, scatter bool) {
	if dims := l.manyDims(); dims != nil {
		l.moveDims(dims, mem, at, flat, n, scatter)
		return
	}
	offset, inBlock := l.start, 0
	if at > 0 {
		offset += at / l.block * l.stride
		inBlock = at % l.block
	}
	if inBlock > 0 || n < l.block {
		m := min(l.block-inBlock, n)
		l.moveSpan(mem, offset+inBlock, flat, m, scatter)
		if n -= m; n == 0 {
			return
		}
		flat, offset = unsafe.Add(flat, m), offset+l.stride
	}
	count := n / l.block
	if count > 0 {
		l.moveGrid(mem, offset, 1, 0, count, l.stride, flat, scatter)
	}
	if m := n - count*l.block; m > 0 {
		l.moveSpan(mem, offset+count*l.stride, unsafe.Add(flat, count*l.block), m, scatter)
	}
}

// moveDims is moveBlocks for several dimensions.
func (l *Layout) moveDims(dims []dim, mem unsafe.Pointer, at int, flat unsafe.Pointer, n int, scatter bool) {
	last := len(dims) - 1
	var index [maxDims]int // of the position's part, in each dimension
	inBlock := 0
	offset := l.start
	if at > 0 {
		inBlock = at % l.block
		at /= l.block
		for i := last; i >= 0; i-- {
			index[i] = at % dims[i].count
			at /= dims[i].count
			offset += index[i] * dims[i].stride
		}
	}
	inner, outer := dims[last], dims[last-1]
	for {
		var m int         // bytes copied in this step
		dimension := last // its index advances by count
		count := 1
		switch {
		case inBlock > 0 || n < l.block:
			m = min(l.block-inBlock, n)
			l.moveSpan(mem, offset+inBlock, flat, m, scatter)
			inBlock = 0
		case index[last] == 0 && n >= inner.count*l.block: // whole rows
			count = min(outer.count-index[last-1], n/(inner.count*l.block))
			l.moveGrid(mem, offset, count, outer.stride, inner.count, inner.stride, flat, scatter)
			m, dimension = count*inner.count*l.block, last-1
		default:
			count = min(inner.count-index[last], n/l.block)
			l.moveGrid(mem, offset, 1, 0, count, inner.stride, flat, scatter)
			m = count * l.block
		}
		if n -= m; n == 0 {
			return
		}
		flat = unsafe.Add(flat, m)
		index[dimension] += count
		offset += count * dims[dimension].stride
		for i := dimension; index[i] == dims[i].count && i > 0; i-- {
			offset += dims[i-1].stride - dims[i].count*dims[i].stride
			index[i] = 0
			index[i-1]++
		}
	}
}

// moveGrid copies whole blocks: in each row, count of them at equal distances.
func (l *Layout) moveGrid(mem unsafe.Pointer, offset, rows, rowStride, count, stride int, flat unsafe.Pointer,
	scatter bool) {
	of := l.of()
	if of == nil {
		switch l.block {
		case 1:
			grid[uint8](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 2:
			grid[uint16](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 4:
			grid[uint32](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 8:
			grid[uint64](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 12:
			grid[[3]uint32](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 16:
			grid[[2]uint64](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 24:
			grid[[3]uint64](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 32:
			grid[[4]uint64](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 40:
			grid[[5]uint64](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 48:
			grid[[6]uint64](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		case 64:
			grid[[8]uint64](mem, offset, rows, rowStride, count, stride, flat, scatter)
			return
		}
	}
	for r := range rows {
		flat := unsafe.Add(flat, r*count*l.block)
		if of == nil || !of.listsElements(l.block) || offset%l.block != 0 || stride%l.block != 0 ||
			!of.moveListed(mem, nil, offset/l.block, stride/l.block, count, flat, scatter) {
			for i := range count {
				l.moveSpan(mem, offset+i*stride, unsafe.Add(flat, i*l.block), l.block, scatter)
			}
		}
		offset += rowStride
	}
}

// grid is moveGrid for blocks that fit a few registers.
func grid[W any](mem unsafe.Pointer, offset, rows, rowStride, count, stride int, flat unsafe.Pointer,
	scatter bool) {
	list := unsafe.Slice((*W)(flat), rows*count)
	for len(list) > 0 {
		row, at := list[:count], offset
		if scatter {
			for i := range row {
				*(*W)(unsafe.Add(mem, at)) = row[i]
				at += stride
			}
		} else {
			for i := range row {
				row[i] = *(*W)(unsafe.Add(mem, at))
				at += stride
			}
		}
		list = list[count:]
		offset += rowStride
	}
}

// Copy copies the bytes of a layout to another of the same length. It uses buf if neither is contiguous.
func Copy(to, from *Cursor, buf []byte) {
	total := from.Layout.Bytes()
	if offset, ok := from.Layout.Contiguous(); ok {
		to.Scatter(0, unsafe.Slice((*byte)(unsafe.Add(from.Memory, offset)), total))
		return
	}
	if offset, ok := to.Layout.Contiguous(); ok {
		from.Gather(0, unsafe.Slice((*byte)(unsafe.Add(to.Memory, offset)), total))
		return
	}
	for done := 0; done < total; done += len(buf) {
		buf = buf[:min(len(buf), total-done)]
		from.Gather(done, buf)
		to.Scatter(done, buf)
	}
}
