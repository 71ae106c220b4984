package mpi

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// Place is a selection of the elements of a rank's part of a window with elements of type T: the target of
// PutView and the source of GetView. Win.At makes it.
type Place[T any] struct{ place }

// place is a Place of any element type.
type place struct {
	// A place fits the registers of a call. A larger one would be passed through memory, which takes as long
	// as the rest of a PutView of a few bytes.
	from, n  int       // elements
	unit     int       // bytes of an element
	selected *selected // nil for all n elements
}

// At selects n elements of a rank's part, beginning with element from. The methods of the Place select from
// these elements, as the methods of a View select from the elements of a view. If the arguments of a Place
// are invalid, calls that take it return the error.
func (w *Win[T]) At(from, n int) Place[T] {
	return Place[T]{place{from: from, n: n, unit: sizeOf[T]()}}
}

// Strided selects count blocks of block elements of the place, which begin stride elements apart.
func (p Place[T]) Strided(count, block, stride int) Place[T] {
	l, err := layout.Strided(p.Len(), p.unit, count, block, stride)
	return Place[T]{p.selection(l, err)}
}

// Sub selects a block of the elements of the place, which form an array whose last index changes fastest.
func (p Place[T]) Sub(shape, start, size []int) Place[T] {
	l, err := layout.Sub(p.Len(), p.unit, shape, start, size)
	return Place[T]{p.selection(l, err)}
}

// Indexed selects length[i] elements of the place, from element at[i] on, for each i; if length is nil, one
// element each. The slices must not be changed while the Place is in use.
func (p Place[T]) Indexed(at, length []int) Place[T] {
	l, err := layout.Indexed(p.Len(), p.unit, at, length)
	return Place[T]{p.selection(l, err)}
}

func (p place) selection(l layout.Layout, err error) place {
	switch {
	case p.err() != nil:
		return p
	case err != nil:
		return place{selected: badSelection(err)}
	}
	outer := p.layout()
	p.selected = &selected{layout: l.Of(&outer)}
	return p
}

// layout returns the layout of the place, relative to its first element.
func (p place) layout() layout.Layout {
	if p.selected != nil {
		return p.selected.layout
	}
	return layout.Whole(0, p.n, p.unit)
}

// err returns the mistake in the place, or nil.
func (p place) err() error {
	switch {
	case p.selected != nil:
		return p.selected.err
	case p.from < 0 || uint(p.n) > uint(1<<62)/uint(max(p.unit, 1)) || p.from > math.MaxInt-p.n:
		return fmt.Errorf("%w: %d elements from %d on", ErrRange, p.n, p.from)
	}
	return nil
}

// Len returns the number of elements.
func (p Place[T]) Len() int { return p.length() }

func (p place) length() int {
	switch {
	case p.err() != nil:
		return 0
	case p.selected != nil:
		return p.selected.layout.Bytes() / max(p.unit, 1) // a zero Place has no unit
	}
	return p.n
}

// PutView writes the elements of a view to the elements of a place in a rank's part, in the order of both
// (MPI 4.1, 12.3.1). Both must have the same number of elements. The elements of the view must not be changed
// before the epoch is closed, or Flush or FlushLocal has returned. PutView may wait until bytes have left
// this rank, and uses at most 64 KiB of memory. It fails with ErrBuffer if the place contains an element
// twice.
func (w *Win[T]) PutView(v View[T], rank int, at Place[T]) error {
	if at.takes(v.bytes, sizeOf[T]()) {
		if there := w.base().mapped(rank, at.from, at.n); there != nil {
			v.gather(there)
			return nil
		}
	}
	return w.moveView(engine.CallPutView, v, rank, at, v.err())
}

// GetView reads the elements of a place in a rank's part into the elements of a view, in the order of both
// (MPI 4.1, 12.3.2). Both must have the same number of elements. The view holds them when the epoch is
// closed, or Flush or FlushLocal has returned. GetView may wait for some of them, and uses at most 64 KiB of
// memory. It fails with ErrBuffer if the view contains an element twice.
func (w *Win[T]) GetView(v View[T], rank int, at Place[T]) error {
	if at.takes(v.bytes, sizeOf[T]()) && v.isDistinct() {
		if there := w.base().mapped(rank, at.from, at.n); there != nil {
			v.scatter(there)
			return nil
		}
	}
	return w.moveView(engine.CallGetView, v, rank, at, cmp.Or(v.err(), v.distinct()))
}

// moveView executes a PutView or a GetView. wrong is the mistake in the view, or nil.
func (w *Win[T]) moveView(call engine.Call, v View[T], rank int, at Place[T], wrong error) error {
	start := w.base().beginCall(call, v.Len())
	t, offset, err := w.base().viewTarget(wrong, v.Len(), rank, at.place)
	if err == nil && t != nil {
		var own layout.Layout
		err = w.base().moveLayout(call, t, offset, v.layout(&own), v.base(), at.place)
	}
	if t != nil {
		t.Release()
	}
	_, err = w.base().endCall(call, start, rank, v.Len(), engine.Request{}, err)
	return err
}

// moveLayout transfers the bytes of a layout of local memory to or from those of a place that begins at an
// offset.
func (w *window) moveLayout(call engine.Call, t *engine.Target, offset int, here *layout.Layout,
	mem unsafe.Pointer, at place) error {
	get := call == engine.CallGetView
	if !get && at.selected != nil && !at.selected.isDistinct() {
		element, _ := at.selected.layout.Twice()
		return fmt.Errorf("%w: the place has element %d of the part twice", ErrBuffer, at.from+element/w.elem)
	}
	if here.Scattered() && at.contiguous() {
		var taken bool
		var err error
		if get {
			taken, err = t.GetView(here, mem, offset+at.offset(), w.via.canceller)
		} else {
			taken, err = t.PutView(here, mem, offset+at.offset(), w.via.canceller)
		}
		if taken || err != nil {
			return err
		}
	}
	m := newWindowView(t, offset, here, mem, at, get)
	err := m.move(w.via.canceller)
	if err == nil {
		m.release()
	}
	return err
}

// contiguous reports whether the elements are contiguous.
func (p place) contiguous() bool { return p.selected == nil || !p.selected.layout.Scattered() }

// offset returns the offset in bytes of the contiguous elements from the first element of the place.
func (p place) offset() int {
	if p.selected == nil {
		return 0
	}
	from, _ := p.selected.layout.Contiguous()
	return from
}

// takes reports whether the place is n contiguous bytes, from its first element on, of elements of unit
// bytes.
func (p place) takes(n, unit int) bool { return p.selected == nil && p.unit == unit && p.n*unit == n }

// viewTarget checks an access to a place by a view of n elements, and returns the offset of the place's first
// element. The target is nil, without an error, if there is nothing to do; otherwise the caller releases it.
func (w *window) viewTarget(wrong error, n, rank int, at place) (t *engine.Target, offset int, err error) {
	switch {
	case wrong != nil:
		return nil, 0, wrong
	case at.err() != nil:
		return nil, 0, at.err()
	}
	if err := w.check(); err != nil {
		return nil, 0, err
	}
	if at.unit != 0 && at.unit != w.elem {
		return nil, 0, fmt.Errorf("%w: a place of elements of %d bytes, in a window of elements of %d",
			ErrType, at.unit, w.elem)
	}
	if n != at.length() {
		return nil, 0, fmt.Errorf("%w: a view of %d elements, and a place of %d", ErrCount, n, at.length())
	}
	t, offset, err = w.target(rank, at.from, at.n)
	if err != nil || t == nil {
		return nil, 0, err
	}
	if n == 0 {
		t.Release()
		return nil, 0, nil
	}
	return t, offset, t.Reach(w.via.canceller)
}

// windowView transfers bytes of a local layout to or from those of a layout of a part. It has buffers for
// pieces that are not contiguous locally; several of them are under way at once.
type windowView struct {
	t          *engine.Target
	offset     int // offset of the place's first element
	here       layout.Cursor
	layout, at layout.Layout
	get        bool // GetView
	pieces     [viewPieces]viewPiece
	next       int // index in pieces
	buf        [viewPieces * pieceBytes]byte
}

const (
	viewPieces = 2
	pieceBytes = 28 << 10
)

// viewPiece is a buffer for bytes of the layouts, from a position on.
type viewPiece struct {
	request engine.Request // zero for none
	at, n   int
}

var windowViews = sync.Pool{New: func() any { return new(windowView) }}

func newWindowView(t *engine.Target, offset int, here *layout.Layout, mem unsafe.Pointer, at place,
	get bool) *windowView {
	m := windowViews.Get().(*windowView)
	m.t, m.offset, m.layout, m.at, m.get = t, offset, *here, at.layout(), get
	m.here = layout.Cursor{Layout: &m.layout, Memory: mem}
	return m
}

func (m *windowView) release() {
	m.t, m.here, m.layout, m.at, m.next = nil, layout.Cursor{}, layout.Layout{}, layout.Layout{}, 0
	windowViews.Put(m)
}

// copiedAtOnce is the length up to which the engine copies the bytes of a Put at once.
const copiedAtOnce = 128

// move transfers all bytes. After an error m must not be released: the operations go on and use its buffers.
func (m *windowView) move(s *engine.Canceller) error {
	if m.t.Mapped() {
		m.mapped()
		return nil
	}
	total := m.at.Bytes()
	for done := 0; done < total; {
		offset, n := m.at.Span(done)
		here, contiguous := m.span(done)
		var err error
		if contiguous >= min(n, pieceBytes) { // no copy is needed
			n = min(n, contiguous)
			if m.get {
				err = m.t.Get(here[:n], m.offset+offset, s)
			} else {
				err = m.t.Put(here[:n], m.offset+offset, s)
			}
		} else if err = m.end(m.next, s); err == nil {
			n = min(n, pieceBytes)
			err = m.movePiece(done, n, m.offset+offset, s)
		}
		if err != nil {
			return cmp.Or(err, m.endAll(s))
		}
		done += n
	}
	return m.endAll(s)
}

// movePiece begins to transfer n bytes through the next buffer.
func (m *windowView) movePiece(done, n, offset int, s *engine.Canceller) (err error) {
	p, buf := &m.pieces[m.next], m.piece(m.next)[:n]
	p.at, p.n = done, n
	if m.get {
		p.request, err = m.t.BeginGet(buf, offset, s)
	} else {
		m.here.Gather(done, buf)
		if n <= copiedAtOnce {
			return m.t.Put(buf, offset, s)
		}
		p.request, err = m.t.BeginPut(buf, offset, s)
	}
	m.next = (m.next + 1) % viewPieces
	return err
}

func (m *windowView) piece(i int) []byte { return m.buf[i*pieceBytes:][:pieceBytes] }

// end waits until the buffer of a piece is free again. For a Get it copies the bytes to local memory.
func (m *windowView) end(i int, s *engine.Canceller) error {
	p := &m.pieces[i]
	if p.request == (engine.Request{}) {
		return nil
	}
	err := m.t.Await(p.request, s)
	p.request = engine.Request{}
	if err == nil && m.get {
		m.here.Scatter(p.at, m.piece(i)[:p.n])
	}
	return err
}

// endAll is end for all pieces, in order.
func (m *windowView) endAll(s *engine.Canceller) (err error) {
	for i := range viewPieces {
		err = cmp.Or(err, m.end((m.next+i)%viewPieces, s))
	}
	return err
}

// span returns the contiguous local bytes from a position on.
func (m *windowView) span(at int) ([]byte, int) {
	offset, n := m.here.Layout.Span(at)
	return unsafe.Slice((*byte)(unsafe.Add(m.here.Memory, offset)), n), n
}

// mapped copies between local memory and a part that is mapped in this process.
func (m *windowView) mapped() {
	there := layout.Cursor{Layout: &m.at, Memory: unsafe.Add(m.t.Base(), m.offset)}
	from, to := &m.here, &there
	if m.get {
		from, to = to, from
	}
	layout.Copy(to, from, m.buf[:pieceBytes])
}
