package mpi

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// Place is a selection of the elements of a rank's part of a window: where PutView puts to, and GetView gets
// from. Win.At makes it.
type Place struct {
	layout  layout.Layout
	unit    int // bytes of an element
	from, n int // of which it is a selection
	err     error
}

// At is the n elements of a part from an element on. Its methods select from these, as those of a View select
// from a view's.
func (w *Win[T]) At(from, n int) Place {
	unit := sizeOf[T]()
	if from < 0 || n < 0 || n > (1<<62)/unit || from > (1<<62)/unit-n {
		return Place{err: fmt.Errorf("%w: %d elements from %d on", ErrRange, n, from)}
	}
	return Place{layout: layout.Whole(from, n, unit), unit: unit, from: from, n: n}
}

// Strided is count blocks of block elements of the place, which begin stride elements apart.
func (p Place) Strided(count, block, stride int) Place {
	l, err := layout.Strided(p.Len(), p.unit, count, block, stride)
	return p.selected(l, err)
}

// Sub is a block of the elements of the place, which are an array whose last index changes fastest.
func (p Place) Sub(shape, start, size []int) Place {
	l, err := layout.Sub(p.Len(), p.unit, shape, start, size)
	return p.selected(l, err)
}

// Indexed is length[i] elements of the place from at[i] on, for each i; without lengths one each. The slices
// must not be changed while the Place is in use.
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

// Len is the number of elements.
func (p Place) Len() int {
	if p.unit == 0 {
		return 0
	}
	return p.layout.Bytes() / p.unit
}

// PutView writes the elements of a view to as many elements of a rank's part, each in its order (MPI 4.1,
// 12.3.1). The elements must not be changed before the epoch is closed, or Flush or FlushLocal has returned.
// It may wait until bytes have left this rank, and uses 16 KiB of memory. A place with an element twice is
// refused.
func (w *Win[T]) PutView(v View[T], rank int, at Place) error {
	t, err := w.base().viewTarget(v.err, v.n, rank, &at)
	if err == nil && t != nil {
		if e := at.layout.Twice(); e >= 0 {
			err = fmt.Errorf("%w: the place has element %d of the part twice", ErrBuffer, e/w.elem)
		}
	}
	if err == nil && t != nil {
		m := newWindowView(t, &v.layout, v.base(), &at)
		err = m.put()
		m.release()
	}
	return w.base().fail("PutView", rank, err)
}

// GetView reads elements of a rank's part into those of a view, as many, each in its order (MPI 4.1, 12.3.2).
// The view has them when the epoch is closed, or Flush or FlushLocal has returned. It may wait for some of
// them, and uses 16 KiB of memory. A view with an element twice is refused.
func (w *Win[T]) GetView(v View[T], rank int, at Place) error {
	t, err := w.base().viewTarget(v.err, v.n, rank, &at)
	if err == nil && t != nil {
		err = v.distinct()
	}
	if err == nil && t != nil {
		m := newWindowView(t, &v.layout, v.base(), &at)
		err = m.get()
		m.release()
	}
	return w.base().fail("GetView", rank, err)
}

// viewTarget checks an access to a place by a view of n elements. It is nil, without an error, where nothing
// is to be done.
func (w *window) viewTarget(wrong error, n, rank int, at *Place) (*engine.Target, error) {
	switch {
	case wrong != nil:
		return nil, wrong
	case at.err != nil:
		return nil, at.err
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	if at.unit != 0 && at.unit != w.elem {
		return nil, fmt.Errorf("%w: a place of elements of %d bytes, in a window of elements of %d", ErrType,
			at.unit, w.elem)
	}
	if n != at.Len() {
		return nil, fmt.Errorf("%w: a view of %d elements, and a place of %d", ErrCount, n, at.Len())
	}
	t, err := w.target(rank, at.from, at.n)
	if err != nil || t == nil || n == 0 {
		return nil, err
	}
	return t, t.Reach()
}

// windowView moves bytes of a layout here to or from those of a layout of a part. It has memory for bytes
// that lie together at neither end, or not here.
type windowView struct {
	t          *engine.Target
	here       layout.Cursor
	layout, at layout.Layout
	buf        [16 << 10]byte
}

var windowViews = sync.Pool{New: func() any { return new(windowView) }}

func newWindowView(t *engine.Target, here *layout.Layout, mem unsafe.Pointer, at *Place) *windowView {
	m := windowViews.Get().(*windowView)
	m.t, m.layout, m.at = t, *here, at.layout
	m.here = layout.Cursor{Layout: &m.layout, Memory: mem}
	return m
}

func (m *windowView) release() {
	m.t, m.here, m.layout, m.at = nil, layout.Cursor{}, layout.Layout{}, layout.Layout{}
	windowViews.Put(m)
}

// copiedAtOnce is the length up to which the engine copies what it puts.
const copiedAtOnce = 128

func (m *windowView) put() error {
	buf := m.buf[:]
	if m.t.Mapped() {
		m.mapped(false)
		return nil
	}
	total := m.at.Bytes()
	for done := 0; done < total; {
		offset, n := m.at.Span(done)
		here, lies := m.span(done)
		piece := buf[:min(n, len(buf))]
		if lies >= min(n, len(buf)) { // what lies together here needs no copy
			piece = here[:min(n, lies)]
		} else {
			m.here.Gather(done, piece)
		}
		if err := m.t.Put(piece, offset); err != nil {
			return err
		}
		done += len(piece)
		if len(piece) > copiedAtOnce && &piece[0] == &buf[0] {
			if err := m.t.FlushLocal(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *windowView) get() error {
	buf := m.buf[:]
	if m.t.Mapped() {
		m.mapped(true)
		return nil
	}
	total := m.at.Bytes()
	for done := 0; done < total; {
		offset, n := m.at.Span(done)
		here, lies := m.span(done)
		if lies >= min(n, len(buf)) {
			n = min(n, lies)
			if err := m.t.Get(here[:n], offset); err != nil {
				return err
			}
			done += n
			continue
		}
		piece := buf[:min(n, len(buf))]
		if err := m.t.Get(piece, offset); err != nil {
			return err
		}
		if err := m.t.FlushLocal(); err != nil {
			return err
		}
		m.here.Scatter(done, piece)
		done += len(piece)
	}
	return nil
}

// span is the bytes here from a position on that lie together.
func (m *windowView) span(at int) ([]byte, int) {
	offset, n := m.here.Layout.Span(at)
	return unsafe.Slice((*byte)(unsafe.Add(m.here.Memory, offset)), n), n
}

// mapped copies between memory here and a part that is in this process.
func (m *windowView) mapped(get bool) {
	there := layout.Cursor{Layout: &m.at, Memory: m.t.Base()}
	from, to := &m.here, &there
	if get {
		from, to = to, from
	}
	total := m.at.Bytes()
	if offset, ok := from.Layout.Contiguous(); ok {
		to.Scatter(0, unsafe.Slice((*byte)(unsafe.Add(from.Memory, offset)), total))
		return
	}
	if offset, ok := to.Layout.Contiguous(); ok {
		from.Gather(0, unsafe.Slice((*byte)(unsafe.Add(to.Memory, offset)), total))
		return
	}
	for buf, done := m.buf[:], 0; done < total; done += len(buf) {
		buf = buf[:min(len(buf), total-done)]
		from.Gather(done, buf)
		to.Scatter(done, buf)
	}
}
