package shm

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// window is a memory window. It keeps one entry of the table of regions, so that a peer's key finds it as it finds a region.
type window struct {
	pd    *pd
	entry *region       // nil once the window is deallocated
	key   transport.Key // of the Bind that was posted last
	asked *qp           // the queue pair of that Bind
	of    *region       // what it is bound to; nil while it is not
	qp    *qp           // that it is bound to
}

// AllocMW makes a window.
func (p *pd) AllocMW() (transport.MW, error) {
	if p.closed || p.dev.closed.Load() {
		return nil, fmt.Errorf("protection domain: %w", transport.ErrDeviceGone)
	}
	t := &p.dev.regions
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.entry(p.dev)
	if err != nil {
		return nil, err
	}
	m := &window{pd: p, entry: r}
	r.next, r.window = nil, m
	r.pd.Store(p)
	p.windows++
	return m, nil
}

// Key is what the peer needs.
func (m *window) Key() transport.Key { return m.key }

// Deallocate ends the window.
func (m *window) Deallocate() error {
	r := m.entry
	if r == nil {
		return fmt.Errorf("%w: the window was deallocated before", transport.ErrInvalid)
	}
	m.unbind()
	m.entry, m.key, m.asked = nil, 0, nil
	m.pd.windows--
	r.window = nil
	r.pd.Store(nil)
	r.dev.regions.put(r)
	return nil
}

// bind carries out a Bind.
func (m *window) bind(q *qp, w *wqe) {
	m.unbind()
	p := w.local[0]
	r := m.entry
	r.mem, r.access, r.shared = p.r.mem[p.off:][:p.n:p.n], w.access, p.r.shared
	m.of, m.qp = p.r, q
	r.key.Store(w.other)
	r.publish(q.pd.id, q.num, transport.Key(w.other))
	m.of.windows++
	if q.windows == nil {
		q.windows = map[*window]struct{}{}
	}
	q.windows[m] = struct{}{}
}

// unbind takes the window's key out of use. It waits a little for a peer that is placing bytes through it.
func (m *window) unbind() {
	if m.of == nil {
		return
	}
	r := m.entry
	if m.key == r.Key() {
		m.key, m.asked = 0, nil
	}
	r.key.Store(0)
	r.revoke()
	r.mem = nil
	m.of.windows--
	delete(m.qp.windows, m)
	m.of, m.qp = nil, nil
}

// unbindAll ends every binding to a queue pair that has ended.
func (q *qp) unbindAll() {
	for m := range q.windows {
		m.unbind()
	}
}

// window finds the window bound to the queue pair that a key names; nil if there is none.
func (q *qp) window(key transport.Key) *window {
	if m := q.pd.window(key); m != nil && m.qp == q && m.entry.Key() == key {
		return m
	}
	return nil
}

// awaited tells whether a key is of a Bind that was posted to the queue pair and is not yet carried out.
func (q *qp) awaited(key transport.Key) bool {
	m := q.pd.window(key)
	return key != 0 && m != nil && m.key == key && m.asked == q
}

// window finds the window of the domain in whose entry a key would be.
func (p *pd) window(key transport.Key) *window {
	i, all := int(uint64(key)&indexMask), p.dev.regions.list()
	if i >= len(all) || all[i].pd.Load() != p {
		return nil
	}
	return all[i].window
}

// checkHere refuses a Bind or an Invalidate that cannot be right.
func (q *qp) checkHere(wr *transport.SendWR) error {
	if len(wr.Local) > 0 || len(wr.Remote) > 0 || wr.Flags&transport.FlagInline != 0 {
		return fmt.Errorf("%w: a Bind or Invalidate with elements, segments or inline", transport.ErrInvalid)
	}
	if wr.Op == transport.OpBind {
		return q.checkBind(wr.Bind)
	}
	if q.window(wr.Key) == nil && !q.awaited(wr.Key) {
		return fmt.Errorf("%w: no window that is bound to this queue pair has the key %#x", transport.ErrInvalid, uint64(wr.Key))
	}
	return nil
}

func (q *qp) checkBind(b *transport.Bind) error {
	if b == nil {
		return fmt.Errorf("%w: a Bind of nothing", transport.ErrInvalid)
	}
	m, ok := b.Window.(*window)
	if !ok || m == nil || m.entry == nil || m.pd != q.pd {
		return fmt.Errorf("%w: a Bind of no window of this protection domain", transport.ErrInvalid)
	}
	const remote = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic
	if b.Access == 0 || b.Access&^remote != 0 {
		return fmt.Errorf("%w: a window with rights %v; one or more of %v are possible", transport.ErrInvalid, b.Access, remote)
	}
	need := transport.BindWindow
	if b.Access != transport.RemoteRead {
		need |= transport.LocalWrite
	}
	r, err := q.pd.local(transport.SGE{MR: b.MR, Offset: b.Offset, Length: b.Length}, need)
	if err != nil {
		return fmt.Errorf("a window's region: %w", err)
	}
	if b.Length == 0 {
		return fmt.Errorf("%w: a window of no bytes", transport.ErrInvalid)
	}
	if b.Access&transport.RemoteAtomic != 0 && !aligned(r.mem, b.Offset) {
		return fmt.Errorf("%w: a window for Atomics that does not begin at a multiple of %d", transport.ErrInvalid, wordSize)
	}
	return nil
}

// postBind fills in what a Bind has of its own, and gives the window its new key.
func (q *qp) postBind(w *wqe, b *transport.Bind) {
	m, r := b.Window.(*window), b.MR.(*region)
	t := &q.dev.regions
	t.mu.Lock()
	for m.key, m.asked = 0, q; m.key == 0; { // 0 stands for no key
		m.key = m.entry.newKey(t.keys.Uint64())
	}
	t.mu.Unlock()
	w.window, w.access, w.other = m, b.Access, uint64(m.key)
	w.local = append(w.local, piece{r, r.Key(), b.Offset, b.Length})
}

// carryOut does what a Bind or Invalidate asks for. What has gone meanwhile ends the QP.
func (q *qp) carryOut(w *wqe) bool {
	var cause string
	switch m := q.window(transport.Key(w.other)); {
	case w.op == transport.OpInvalidate && m != nil:
		m.unbind()
	case w.op == transport.OpInvalidate:
		cause = fmt.Sprintf("no window that is bound to this queue pair has the key %#x any more", w.other)
	case w.window.entry == nil:
		cause = "the window of a posted Bind was deallocated"
	case !w.alive():
		cause = "the region of a posted Bind was deregistered"
	default:
		w.window.bind(q, w)
	}
	if cause != "" {
		w.failed = transport.StatusLocalProt
		q.fail(fmt.Errorf("%w: %s", transport.ErrInvalid, cause), transport.StatusFlushed)
		return false
	}
	w.done, w.window = true, nil
	return true
}
