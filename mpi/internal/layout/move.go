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
	l := c.Layout
	switch {
	case at == 0 && l.depth == 1 && l.block == 8 && l.of == nil && len(flat)%8 == 0: // most columns
		row[uint64](c.Memory, l.start, len(flat)/8, l.few[0].stride, p, scatter)
		return
	case at == 0 && l.listsElements(8) && len(flat)%8 == 0: // most index sets
		elements[uint64](unsafe.Add(c.Memory, l.start), l.list.at[:len(flat)/8], l.list.step, p, scatter)
		return
	case l.list == nil:
		l.moveBlocks(c.Memory, at, p, len(flat), scatter)
		return
	case l.list.length == nil || l.list.ends != nil:
		c.entry, c.begins = l.list.find(at)
	case at < c.begins:
		c.entry, c.begins = 0, 0
	}
	c.entry, c.begins = l.moveList(c.Memory, c.entry, c.begins, at, p, len(flat), scatter)
}

// moveBy is a Cursor's move without one.
func (l *Layout) moveBy(mem unsafe.Pointer, at int, flat unsafe.Pointer, n int, scatter bool) {
	if l.list == nil {
		l.moveBlocks(mem, at, flat, n, scatter)
		return
	}
	entry, begins := l.list.find(at)
	l.moveList(mem, entry, begins, at, flat, n, scatter)
}

// moveList copies n bytes from a position on, which is in a range or after it. It gives the range in which
// the last byte is, and where that begins.
func (l *Layout) moveList(mem unsafe.Pointer, entry, begins, at int, flat unsafe.Pointer, n int,
	scatter bool) (int, int) {
	p := l.list
	if p.length == nil && at == begins && n%p.size == 0 {
		if l.moveElements(mem, p.at[entry:][:n/p.size], flat, scatter) {
			return entry, begins
		}
	}
	for {
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

// moveElements copies elements of a list of single ones, if they have a size that there is a loop for, and
// are elements of memory, or of a list of single ones there.
func (l *Layout) moveElements(mem unsafe.Pointer, at []int, flat unsafe.Pointer, scatter bool) bool {
	if l.of != nil {
		if !l.of.listsElements(l.list.size) || l.start%l.list.size != 0 || l.list.step%l.list.size != 0 {
			return false
		}
		first, step := l.start/l.list.size, l.list.step/l.list.size
		return l.of.moveListed(mem, at, first, step, len(at), flat, scatter)
	}
	mem = unsafe.Add(mem, l.start)
	step := l.list.step
	switch l.list.size {
	case 1:
		elements[uint8](mem, at, step, flat, scatter)
	case 2:
		elements[uint16](mem, at, step, flat, scatter)
	case 4:
		elements[uint32](mem, at, step, flat, scatter)
	case 8:
		elements[uint64](mem, at, step, flat, scatter)
	case 16:
		elements[[2]uint64](mem, at, step, flat, scatter)
	default:
		return false
	}
	return true
}

func elements[W any](mem unsafe.Pointer, at []int, step int, flat unsafe.Pointer, scatter bool) {
	list := unsafe.Slice((*W)(flat), len(at))
	if scatter {
		for i, from := range at {
			*(*W)(unsafe.Add(mem, from*step)) = list[i]
		}
		return
	}
	for i, from := range at {
		list[i] = *(*W)(unsafe.Add(mem, from*step))
	}
}

// listsElements tells whether l is a list of single elements of memory, of a size.
func (l *Layout) listsElements(size int) bool {
	return l.list != nil && l.list.length == nil && l.list.size == size && l.of == nil
}

// moveListed copies count entries of a list of single elements: those that another list gives (at), or, where
// that is nil, those from first on, step apart.
func (l *Layout) moveListed(mem unsafe.Pointer, at []int, first, step, count int, flat unsafe.Pointer,
	scatter bool) bool {
	mem = unsafe.Add(mem, l.start)
	switch l.list.size {
	case 4:
		listed[uint32](mem, l.list, at, first, step, count, flat, scatter)
	case 8:
		listed[uint64](mem, l.list, at, first, step, count, flat, scatter)
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
	if at == 0 && last == 0 && n%l.block == 0 {
		l.moveRow(mem, l.start, n/l.block, dims[0].stride, flat, scatter)
		return
	}
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
	offset := l.start
	for i, d := range dims {
		offset += index[i] * d.stride
	}
	for {
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
		offset += count * dims[last].stride
		for i := last; index[i] == dims[i].count && i > 0; i-- {
			offset += dims[i-1].stride - dims[i].count*dims[i].stride
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
		case 24, 32, 40, 48, 56, 64:
			rowOfWords(mem, offset, count, stride, l.block/8, flat, scatter)
			return
		}
	} else if l.of.listsElements(l.block) && offset%l.block == 0 && stride%l.block == 0 &&
		l.of.moveListed(mem, nil, offset/l.block, stride/l.block, count, flat, scatter) {
		return
	}
	for i := range count {
		l.moveSpan(mem, offset, unsafe.Add(flat, i*l.block), l.block, scatter)
		offset += stride
	}
}

// rowOfWords is row for blocks of a few words, for which copy would take longer to begin than to copy.
func rowOfWords(mem unsafe.Pointer, offset, count, stride, words int, flat unsafe.Pointer, scatter bool) {
	for k := range count {
		from := unsafe.Slice((*uint64)(unsafe.Add(mem, offset)), words)
		to := unsafe.Slice((*uint64)(unsafe.Add(flat, k*words*8)), words)
		if scatter {
			from, to = to, from
		}
		for i, w := range from[:len(to)] {
			to[i] = w
		}
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

// Copy copies the bytes of a layout to those of another, which is as long: through buf where they lie
// together at neither end.
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
