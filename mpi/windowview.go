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

// Place is a selection of the elements of a rank's part of a window: the target of PutView and the source of
// GetView. Win.At makes it.
type Place struct {
	layout  layout.Layout // of the n elements
	unit    int           // bytes of an element
	from, n int           // of which it is a selection
	err     error
}

// At selects n elements of a part, from element from on. The methods of the Place select from these, as those
// of a View select from the view's elements.
func (w *Win[T]) At(from, n int) (p Place) {
	unit := sizeOf[T]()
	if from < 0 || n < 0 || n > (1<<62)/unit || from > math.MaxInt-n {
		p.err = fmt.Errorf("%w: %d elements from %d on", ErrRange, n, from)
		return p
	}
	p.layout.Extend(n * unit)
	p.unit, p.from, p.n = unit, from, n
	return p
}

// Strided selects count blocks of block elements of the place, which begin stride elements apart.
func (p Place) Strided(count, block, stride int) Place {
	l, err := layout.Strided(p.Len(), p.unit, count, block, stride)
	return p.selected(l, err)
}

// Sub selects a block of the elements of the place, which form an array whose last index changes fastest.
func (p Place) Sub(shape, start, size []int) Place {
	l, err := layout.Sub(p.Len(), p.unit, shape, start, size)
	return p.selected(l, err)
}

// Indexed selects length[i] elements of the place, from element at[i] on, for each i; if length is nil, one
// element each. The slices must not be changed while the Place is in use.
func (p Place) Indexed(at, length []int) Place {
	l, err := layout.Indexed(p.Len(), p.unit, at, length)
	return p.selected(l, err)
}

func (p *Place) selected(l layout.Layout, err error) Place {
	switch {
	case p.err != nil:
		return Place{err: p.err}
	case err != nil:
		return Place{err: fmt.Errorf("%w: %w", ErrCount, err)}
	}
	return Place{layout: l.Of(&p.layout), unit: p.unit, from: p.from, n: p.n}
}

// Len returns the number of elements.
func (p Place) Len() int {
	if p.unit == 0 {
		return 0
	}
	return p.layout.Bytes() / p.unit
}

// PutView writes the elements of a view to as many elements of a rank's part, each in its own order (MPI 4.1,
// 12.3.1). The elements must not be changed before the epoch is closed, or Flush or FlushLocal has returned.
// PutView may wait until data has left this rank, and uses 56 KiB of memory. It refuses a place that contains
// an element twice.
func (w *Win[T]) PutView(v View[T], rank int, at Place) error {
	if there := w.base().mappedPlace(v.err, v.layout.Bytes(), rank, &at); there != nil {
		if !at.layout.Apart() {
			here := v.cursor()
			here.Gather(0, at.together(there))
			return nil
		}
	}
	return w.putView(&v, rank, &at)
}

func (w *Win[T]) putView(v *View[T], rank int, at *Place) error {
	traced := traceOperation()
	t, offset, err := w.base().viewTarget(v.err, v.n, rank, at)
	if t != nil {
		defer t.Release()
	}
	if err == nil && t != nil {
		if e := at.layout.Twice(); e >= 0 {
			err = fmt.Errorf("%w: the place has element %d of the part twice", ErrBuffer,
				at.from+e/w.elem)
		}
	}
	if err == nil && t != nil {
		m := newWindowView(t, offset, &v.layout, v.base(), at)
		if err = m.put(w.via.scope); err == nil {
			m.release()
		}
	}
	traced.ended(w.base(), tracedPutView, rank, v.n)
	return w.base().fail("PutView", rank, err)
}

// GetView reads elements of a rank's part into as many elements of a view, each in its own order (MPI 4.1,
// 12.3.2). The view holds them when the epoch is closed, or Flush or FlushLocal has returned. GetView may
// wait for some of them, and uses 56 KiB of memory. It refuses a view that contains an element twice.
func (w *Win[T]) GetView(v View[T], rank int, at Place) error {
	if there := w.base().mappedPlace(v.err, v.layout.Bytes(), rank, &at); there != nil {
		if !at.layout.Apart() && v.layout.Twice() < 0 {
			here := v.cursor()
			here.Scatter(0, at.together(there))
			return nil
		}
	}
	return w.getView(&v, rank, &at)
}

func (w *Win[T]) getView(v *View[T], rank int, at *Place) error {
	traced := traceOperation()
	t, offset, err := w.base().viewTarget(v.err, v.n, rank, at)
	if t != nil {
		defer t.Release()
	}
	if err == nil && t != nil {
		err = v.distinct()
	}
	if err == nil && t != nil {
		m := newWindowView(t, offset, &v.layout, v.base(), at)
		if err = m.get(w.via.scope); err == nil {
			m.release()
		}
	}
	traced.ended(w.base(), tracedGetView, rank, v.n)
	return w.base().fail("GetView", rank, err)
}

// mappedPlace is where in this process a place is that takes n bytes (n > 0); nil where it is not, and where
// anything is to be said against the access.
func (w *window) mappedPlace(wrong error, n, rank int, at *Place) unsafe.Pointer {
	if wrong != nil || at.err != nil || n == 0 || n != at.layout.Bytes() {
		return nil
	}
	there := w.mapped(rank, at.from, at.n)
	if there == nil || at.unit != w.elem {
		return nil
	}
	return there
}

// together is the memory of a place that selects from mapped memory, and whose elements lie together.
func (p *Place) together(mapped unsafe.Pointer) []byte {
	from, _ := p.layout.Contiguous()
	return unsafe.Slice((*byte)(unsafe.Add(mapped, from)), p.layout.Bytes())
}

// viewTarget checks an access to a place by a view of n elements, and gives the offset of what the place
// selects from. The target is nil, without an error, where nothing is to be done; else it is to be released.
func (w *window) viewTarget(wrong error, n, rank int, at *Place) (t *engine.Target, offset int,
	err error) {
	switch {
	case wrong != nil:
		return nil, 0, wrong
	case at.err != nil:
		return nil, 0, at.err
	}
	if err := w.check(); err != nil {
		return nil, 0, err
	}
	if at.unit != 0 && at.unit != w.elem {
		return nil, 0, fmt.Errorf("%w: a place of elements of %d bytes, in a window of elements of %d",
			ErrType, at.unit, w.elem)
	}
	if n != at.Len() {
		return nil, 0, fmt.Errorf("%w: a view of %d elements, and a place of %d", ErrCount, n, at.Len())
	}
	t, offset, err = w.target(rank, at.from, at.n)
	if err != nil || t == nil {
		return nil, 0, err
	}
	if n == 0 {
		t.Release()
		return nil, 0, nil
	}
	return t, offset, t.Reach(w.via.scope)
}

// windowView moves bytes of a layout here to or from those of a layout of a part. It has memory for pieces
// that lie together at neither end, or not here; some of them are under way at once.
type windowView struct {
	t          *engine.Target
	offset     int // of what the place selects from
	here       layout.Cursor
	layout, at layout.Layout
	pieces     [viewPieces]viewPiece
	next       int // of pieces
	buf        [viewPieces * pieceBytes]byte
}

const (
	viewPieces = 2
	pieceBytes = 28 << 10
)

// viewPiece is bytes that are put or got, in the order of both layouts from a position on.
type viewPiece struct {
	request engine.Request // zero for none
	at, n   int
}

var windowViews = sync.Pool{New: func() any { return new(windowView) }}

func newWindowView(t *engine.Target, offset int, here *layout.Layout, mem unsafe.Pointer,
	at *Place) *windowView {
	m := windowViews.Get().(*windowView)
	m.t, m.offset, m.layout, m.at = t, offset, *here, at.layout
	m.here = layout.Cursor{Layout: &m.layout, Memory: mem}
	return m
}

func (m *windowView) release() {
	m.t, m.here, m.layout, m.at, m.next = nil, layout.Cursor{}, layout.Layout{}, layout.Layout{}, 0
	windowViews.Put(m)
}

// copiedAtOnce is the length up to which the engine copies what it puts.
const copiedAtOnce = 128

// put leaves the memory with the operations if it fails: they go on, and m must not be released.
func (m *windowView) put(s *engine.Canceller) error {
	if m.t.Mapped() {
		m.mapped(false)
		return nil
	}
	total := m.at.Bytes()
	for done := 0; done < total; {
		offset, n := m.at.Span(done)
		here, lies := m.span(done)
		var err error
		if lies >= min(n, pieceBytes) { // what lies together here needs no copy
			n = min(n, lies)
			err = m.t.Put(here[:n], m.offset+offset, s)
		} else if err = m.end(m.next, false, s); err == nil {
			n = min(n, pieceBytes)
			piece := m.piece(m.next)[:n]
			m.here.Gather(done, piece)
			if n <= copiedAtOnce {
				err = m.t.Put(piece, m.offset+offset, s)
			} else {
				m.pieces[m.next].request, err = m.t.BeginPut(piece, m.offset+offset, s)
				m.next = (m.next + 1) % viewPieces
			}
		}
		if err != nil {
			return cmp.Or(err, m.endAll(false, s))
		}
		done += n
	}
	return m.endAll(false, s)
}

// get is put the other way.
func (m *windowView) get(s *engine.Canceller) error {
	if m.t.Mapped() {
		m.mapped(true)
		return nil
	}
	total := m.at.Bytes()
	for done := 0; done < total; {
		offset, n := m.at.Span(done)
		here, lies := m.span(done)
		var err error
		if lies >= min(n, pieceBytes) {
			n = min(n, lies)
			err = m.t.Get(here[:n], m.offset+offset, s)
		} else if err = m.end(m.next, true, s); err == nil {
			n = min(n, pieceBytes)
			p := &m.pieces[m.next]
			p.at, p.n = done, n
			p.request, err = m.t.BeginGet(m.piece(m.next)[:n], m.offset+offset, s)
			m.next = (m.next + 1) % viewPieces
		}
		if err != nil {
			return cmp.Or(err, m.endAll(true, s))
		}
		done += n
	}
	return m.endAll(true, s)
}

func (m *windowView) piece(i int) []byte { return m.buf[i*pieceBytes:][:pieceBytes] }

// end waits until the memory of a piece is free again. What was got goes to its place here.
func (m *windowView) end(i int, got bool, s *engine.Canceller) error {
	p := &m.pieces[i]
	if p.request == (engine.Request{}) {
		return nil
	}
	err := m.t.Await(p.request, s)
	p.request = engine.Request{}
	if err == nil && got {
		m.here.Scatter(p.at, m.piece(i)[:p.n])
	}
	return err
}

// endAll is end of all pieces, in their order.
func (m *windowView) endAll(got bool, s *engine.Canceller) (err error) {
	for i := range viewPieces {
		err = cmp.Or(err, m.end((m.next+i)%viewPieces, got, s))
	}
	return err
}

// span is the bytes here from a position on that lie together.
func (m *windowView) span(at int) ([]byte, int) {
	offset, n := m.here.Layout.Span(at)
	return unsafe.Slice((*byte)(unsafe.Add(m.here.Memory, offset)), n), n
}

// mapped copies between memory here and a part that is in this process.
func (m *windowView) mapped(get bool) {
	there := layout.Cursor{Layout: &m.at, Memory: unsafe.Add(m.t.Base(), m.offset)}
	from, to := &m.here, &there
	if get {
		from, to = to, from
	}
	layout.Copy(to, from, m.buf[:pieceBytes])
}
