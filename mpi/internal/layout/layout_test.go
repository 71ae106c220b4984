package layout

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// random makes a layout of up to total elements, which may have some twice, and the list of its elements.
func random(r *rand.Rand, total, size int) (Layout, []int) {
	for {
		var l Layout
		var order []int
		var err error
		switch r.IntN(4) {
		case 0, 1:
			count, block, stride := r.IntN(7), r.IntN(6), r.IntN(17)-8
			l, err = Strided(total, size, count, block, stride)
			from := 0
			if stride < 0 {
				from = (count - 1) * -stride
			}
			for i := range count {
				for j := range block {
					order = append(order, from+i*stride+j)
				}
			}
		case 2:
			n := 1 + r.IntN(6)
			shape, start, extent := make([]int, n), make([]int, n), make([]int, n)
			for d := range shape {
				shape[d] = 1 + r.IntN(4)
				start[d] = r.IntN(shape[d])
				extent[d] = r.IntN(shape[d]-start[d]+1) | r.IntN(2)
				extent[d] = min(extent[d], shape[d]-start[d])
			}
			l, err = Sub(total, size, shape, start, extent)
			order = subOrder(shape, start, extent)
		default:
			at, length := make([]int, r.IntN(6)), []int(nil)
			if r.IntN(2) == 0 {
				length = make([]int, len(at))
			}
			for i := range at {
				at[i] = r.IntN(total + 1)
				n := 1
				if length != nil {
					n = r.IntN(4)
					length[i] = n
				}
				for j := range n {
					order = append(order, at[i]+j)
				}
			}
			l, err = Indexed(total, size, at, length)
		}
		if err == nil {
			return l, order
		}
	}
}

func subOrder(shape, start, extent []int) (order []int) {
	total := 1
	for _, n := range shape {
		total *= n
	}
	for i := range total {
		rest, inside := i, true
		for d := len(shape) - 1; d >= 0; d-- {
			at := rest % shape[d]
			rest /= shape[d]
			inside = inside && at >= start[d] && at < start[d]+extent[d]
		}
		if inside {
			order = append(order, i)
		}
	}
	return order
}

// nested makes a selection of selections, and the list of its elements in memory.
func nested(r *rand.Rand, total, size int) (Layout, []int) {
	l, order := random(r, total, size)
	return nestedIn(r, l, order, size)
}

// nestedIn makes selections of a layout, whose elements are listed, or leaves it.
func nestedIn(r *rand.Rand, l Layout, order []int, size int) (Layout, []int) {
	for r.IntN(3) > 0 && len(order) > 0 {
		inner, places := random(r, len(order), size)
		l = inner.Of(&l)
		next := make([]int, len(places))
		for i, place := range places {
			next[i] = order[place]
		}
		order = next
	}
	return l, order
}

// What Rows tells of a layout makes the same one, but for where it begins, and has no element twice.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 8))
	var rows [2]int
	for range 5000 {
		l, order := nested(r, 1+r.IntN(150), 8)
		start, block, stride, ok := l.Rows()
		if !ok {
			require.True(t, l.more != nil || hasTwice(&l))
			rows[0]++
			continue
		}
		rows[1]++
		again := Layout{}
		again.SetRows(l.Bytes(), int32(block), int32(stride))
		require.False(t, hasTwice(&again))
		again.start = start
		require.Equal(t, l, again, order)
	}
	require.Greater(t, min(rows[0], rows[1]), 500)
}

func hasTwice(l *Layout) bool {
	_, twice := l.Twice()
	return twice
}

// Selections from rows that go backwards from where their memory begins, as those of a view do, report whether
// they have an element twice.
func TestTwiceBeforeTheBeginning(t *testing.T) {
	const size = 8
	r := rand.New(rand.NewPCG(19, 9))
	var found [2]int
	for round := range 5000 {
		count, block := 2+r.IntN(10), 1+r.IntN(4)
		var rows Layout
		rows.SetRows(count*block*size, int32(block*size), int32(-size*(block+r.IntN(4))))
		order := make([]int, count*block)
		for i := range order {
			order[i] = i
		}
		l, order := nestedIn(r, rows, order, size)
		twice := len(slices.Compact(slices.Sorted(slices.Values(order)))) < len(order)
		at, is := l.Twice()
		require.Equal(t, twice, is, "round %d: %v", round, order)
		if !twice {
			found[0]++
			continue
		}
		found[1]++
		times := 0
		for position := 0; position < l.Bytes(); position += size {
			if from, _ := l.Span(position); from == at {
				times++
			}
		}
		require.Greater(t, times, 1, "round %d: %d of %v", round, at, order)
	}
	require.Greater(t, min(found[0], found[1]), 100)
}

// Selections of selections copy what a plain list of elements names, in pieces of any length; and they tell
// whether that list has an element twice.
func TestAgainstLists(t *testing.T) {
	r := rand.New(rand.NewPCG(19, 7))
	overlapping, nestedInMemory := 0, 0
	for round := range 15_000 {
		size := []int{1, 2, 3, 4, 8, 12, 16, 24, 32}[r.IntN(9)]
		total := 1 + r.IntN(150)
		mem := make([]byte, total*size)
		for i := range mem {
			mem[i] = byte(r.Uint32())
		}
		l, order := nested(r, total, size)
		require.Equal(t, len(order)*size, l.Bytes(), round)
		var flat []byte
		for _, e := range order {
			flat = append(flat, mem[e*size:][:size]...)
		}
		if l.of() != nil {
			nestedInMemory++
		}
		if len(flat) > 0 {
			checkSpans(t, &l, mem, flat)
			checkCursor(t, r, &l, mem, flat)
		}
		twice := len(slices.Compact(slices.Sorted(slices.Values(order)))) < len(order)
		if twice {
			overlapping++
		}
		require.Equal(t, twice, hasTwice(&l), "round %d: %v", round, order)
		if !twice && len(flat) > 0 {
			checkScatter(t, r, &l, mem, order, size)
		}
	}
	require.Greater(t, overlapping, 500)
	require.Greater(t, nestedInMemory, 500)
}

func checkSpans(t *testing.T, l *Layout, mem, flat []byte) {
	for at := 0; at < len(flat); {
		from, n := l.Span(at)
		require.Positive(t, n)
		require.Equal(t, flat[at:at+n], mem[from:from+n])
		at += n
	}
	if from, ok := l.Contiguous(); ok {
		require.Equal(t, flat, mem[from:][:len(flat)])
	}
}

func checkCursor(t *testing.T, r *rand.Rand, l *Layout, mem, flat []byte) {
	c := Cursor{Layout: l, Memory: unsafe.Pointer(&mem[0])}
	got := make([]byte, len(flat))
	for at := 0; at < len(flat); {
		n := 1 + r.IntN(len(flat)-at)
		c.Gather(at, got[at:at+n])
		at += n
	}
	require.Equal(t, flat, got)
	at := r.IntN(len(flat)) // anywhere
	n := r.IntN(len(flat) - at + 1)
	c.Gather(at, got[:n])
	require.Equal(t, flat[at:at+n], got[:n])
	clear(got)
	l.Gather(c.Memory, got[:at])
	require.Equal(t, flat[:at], got[:at])
}

func checkScatter(t *testing.T, r *rand.Rand, l *Layout, mem []byte, order []int, size int) {
	expected, src := slices.Clone(mem), make([]byte, len(order)*size)
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	for i, e := range order {
		copy(expected[e*size:][:size], src[i*size:])
	}
	c := Cursor{Layout: l, Memory: unsafe.Pointer(&mem[0])}
	for at := 0; at < len(src); {
		n := 1 + r.IntN(len(src)-at)
		c.Scatter(at, src[at:at+n])
		at += n
	}
	require.Equal(t, expected, mem)
	c.Scatter(0, make([]byte, len(src)))
	l.Scatter(c.Memory, src)
	require.Equal(t, expected, mem)
}

// Offsets beyond 4 GiB are right. The memory is reserved, and only the pages that are touched come to be.
func TestBeyond4GiB(t *testing.T) {
	const size = 6 << 30
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skip("no room for the reservation: ", err)
	}
	defer syscall.Munmap(mem)
	const elements = size / 8
	word := func(i int) *uint64 { return (*uint64)(unsafe.Pointer(&mem[i*8])) }
	columns, err := Strided(elements, 8, 3, 2, 300<<20)
	require.NoError(t, err)
	backwards, err := Strided(6, 8, 6, 1, -1)
	require.NoError(t, err)
	cube, err := Sub(elements, 8, []int{3, 1 << 15, 1 << 13}, []int{1, 1<<15 - 1, 5}, []int{2, 1, 2})
	require.NoError(t, err)
	list, err := Indexed(elements, 8, []int{elements - 3, 7, 1 << 29}, []int{2, 1, 1})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		l     Layout
		order []int
	}{
		"strided":     {columns, []int{0, 1, 300 << 20, 300<<20 + 1, 600 << 20, 600<<20 + 1}},
		"of a view":   {backwards.Of(&columns), []int{600<<20 + 1, 600 << 20, 300<<20 + 1, 300 << 20, 1, 0}},
		"block":       {cube, []int{1<<29 - 1<<13 + 5, 1<<29 - 1<<13 + 6, 3<<28 - 1<<13 + 5, 3<<28 - 1<<13 + 6}},
		"list":        {list, []int{elements - 3, elements - 2, 7, 1 << 29}},
		"list of few": {must(t, 4, []int{3, 0}).Of(&list), []int{1 << 29, elements - 3}},
	} {
		for i, e := range c.order {
			*word(e) = uint64(i + 100)
		}
		got := make([]uint64, len(c.order))
		flat := unsafe.Slice((*byte)(unsafe.Pointer(&got[0])), len(got)*8)
		cursor := Cursor{Layout: &c.l, Memory: unsafe.Pointer(&mem[0])}
		cursor.Gather(0, flat)
		for i := range got {
			require.Equal(t, uint64(i+100), got[i], name)
			got[i] = uint64(i + 500)
		}
		cursor.Scatter(0, flat)
		for i, e := range c.order {
			require.Equal(t, uint64(i+500), *word(e), name)
		}
		require.False(t, hasTwice(&c.l), name)
	}
}

func must(t *testing.T, total int, at []int) Layout {
	l, err := Indexed(total, 8, at, nil)
	require.NoError(t, err)
	return l
}

// What no memory can have is refused, and not computed wrongly.
func TestOverflow(t *testing.T) {
	_, err := Strided(1<<40, 8, 1<<40, 1<<30, 0)
	require.Error(t, err)
	_, err = Strided(10, 8, 2, 1, -1<<63)
	require.Error(t, err)
	_, err = Sub(10, 8, []int{1 << 40, 1 << 40}, []int{0, 0}, []int{1, 1})
	require.Error(t, err)
}

// Shapes that occur are joined to one layout of memory.
func TestJoined(t *testing.T) {
	rows, _ := Strided(1000, 8, 10, 100, 100)
	column, _ := Strided(1000, 8, 10, 1, 100)
	block, _ := Sub(1000, 8, []int{10, 100}, []int{2, 10}, []int{5, 20})
	inBlock, _ := Sub(100, 8, []int{5, 20}, []int{1, 3}, []int{2, 4})
	for _, l := range []Layout{column.Of(&rows), inBlock.Of(&block), Whole(3, 2, 8).Of(&block)} {
		require.Nil(t, l.of())
	}
}

// Columns, and blocks of matrices, are made without an allocation.
func TestSmallLayouts(t *testing.T) {
	shape, start, extent := []int{10, 100}, []int{2, 10}, []int{5, 20}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		column, err := Strided(1000, 8, 10, 1, 100)
		block, wrong := Sub(1000, 8, shape, start, extent)
		if of := Whole(3, 1, 8).Of(&column); err != nil || wrong != nil || of.Scattered() || !block.Scattered() {
			t.Fatal(err, wrong)
		}
	}))
}

// Nothing is allocated to copy, or to look for elements that occur twice, in any order of a list.
func TestAllocations(t *testing.T) {
	mem, flat := make([]byte, 1<<20), make([]byte, 1<<12)
	strided, _ := Strided(1<<17, 8, 512, 1, 256)
	list, _ := Indexed(1<<17, 8, rand.New(rand.NewPCG(1, 1)).Perm(512), nil)
	over, _ := Indexed(512, 8, rand.New(rand.NewPCG(1, 1)).Perm(512), nil)
	of := over.Of(&strided)
	for _, l := range []*Layout{&strided, &list, &of} {
		c := Cursor{Layout: l, Memory: unsafe.Pointer(&mem[0])}
		l.Twice()
		require.Zero(t, testing.AllocsPerRun(100, func() {
			c.Gather(0, flat)
			c.Scatter(0, flat)
			if hasTwice(l) {
				t.Fatal("twice")
			}
		}))
	}
}
