package sim

import (
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/transport"
)

const remoteRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

type window struct {
	pd   *pd
	gone bool
	key  transport.Key // of the latest Bind
	qp   *qp           // bound to it, or nil
	of   *mr           // bound to this region
	part *mr           // the part of it that the key reaches, as a region
}

func (p *pd) AllocMW() (transport.MW, error) {
	p.dev.net.mu.Lock()
	defer p.dev.net.mu.Unlock()
	if err := p.check(0); err != nil {
		return nil, fmt.Errorf("allocate window: %w", err)
	}
	p.users++
	return &window{pd: p}, nil
}

func (m *window) Key() transport.Key {
	m.pd.dev.net.mu.Lock()
	defer m.pd.dev.net.mu.Unlock()
	return m.key
}

func (m *window) Deallocate() error {
	d := m.pd.dev
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if m.gone {
		if d.gone {
			return nil
		}
		return fmt.Errorf("deallocate: the window is gone already: %w", transport.ErrInvalid)
	}
	m.unbind()
	m.gone, m.key = true, 0
	m.pd.users--
	return nil
}

// announce sets the key of a posted Bind.
func (m *window) announce(q *qp) transport.Key {
	m.key = q.dev.newKey()
	return m.key
}

func (m *window) bind(q *qp, w *sendWQE) {
	if q.net.mutant != rebindKeeps {
		m.unbind()
	}
	to := w.local[0]
	end := to.off + to.len
	if q.net.mutant == windowUnbounded {
		end = len(to.mr.buf)
	}
	m.qp, m.of = q, to.mr
	m.part = &mr{pd: m.pd, buf: m.of.buf[to.off:end:end], access: w.access, key: w.key, live: true, window: m}
	m.of.bound++
	q.dev.keys[w.key] = m.part
	q.windows = append(q.windows, m)
}

// unbind invalidates the window's key.
func (m *window) unbind() {
	if m.qp == nil {
		return
	}
	if m.key == m.part.key {
		m.key = 0
	}
	delete(m.pd.dev.keys, m.part.key)
	m.part.live, m.part.buf = false, nil
	m.of.bound--
	i := slices.Index(m.qp.windows, m)
	m.qp.windows = slices.Delete(m.qp.windows, i, i+1)
	m.qp, m.of, m.part = nil, nil, nil
}

// unbindAll ends all bindings to a queue pair that has ended.
func (q *qp) unbindAll() {
	for _, m := range slices.Clone(q.windows) {
		m.unbind()
	}
}

// boundTo returns the window with a key that is bound to the queue pair; nil for none.
func (q *qp) boundTo(key transport.Key) *window {
	if m := q.dev.keys[key]; m != nil && m.window != nil && m.window.qp == q {
		return m.window
	}
	return nil
}

// invalidate invalidates a key for the peer.
func (q *qp) invalidate(key transport.Key) error {
	m := q.boundTo(key)
	if m == nil {
		return fmt.Errorf("invalidate key %#x, of no window that is bound to this queue pair: %w", key,
			transport.ErrAccess)
	}
	if q.net.mutant != invalidateForgotten {
		m.unbind()
	}
	return nil
}

// here reports whether the request is carried out at this end.
func (w *sendWQE) here() bool { return w.op == transport.OpBind || w.op == transport.OpInvalidate }

// checkHere checks a Bind or an Invalidate.
func (q *qp) checkHere(wr *transport.SendWR) (*sendWQE, error) {
	w := &sendWQE{id: wr.ID, op: wr.Op, flags: wr.Flags, key: wr.Key, overtakes: q.rng.IntN(2) == 0}
	switch {
	case len(wr.Local) > 0 || len(wr.Remote) > 0 || w.has(transport.FlagInline):
		return nil, fmt.Errorf("elements, segments or inline, for nothing is sent: %w", transport.ErrInvalid)
	case wr.Op == transport.OpBind:
		return w, q.checkBind(w, wr.Bind)
	case q.boundTo(wr.Key) == nil && !q.awaited(wr.Key):
		return nil, fmt.Errorf("invalidate key %#x, of no window that is bound to this queue pair: %w",
			wr.Key, transport.ErrInvalid)
	}
	return w, nil
}

// awaited reports whether a posted Bind that is not carried out yet has the key.
func (q *qp) awaited(key transport.Key) bool {
	for _, w := range q.sq {
		if w.op == transport.OpBind && !w.begun && w.key == key && w.window.key == key {
			return true
		}
	}
	return false
}

func (q *qp) checkBind(w *sendWQE, b *transport.Bind) error {
	if b == nil {
		return fmt.Errorf("a Bind of nothing: %w", transport.ErrInvalid)
	}
	m, ok := b.Window.(*window)
	switch {
	case !ok || m == nil || m.gone:
		return fmt.Errorf("a Bind of no window of this provider: %w", transport.ErrInvalid)
	case m.pd != q.cfg.PD:
		return fmt.Errorf("a Bind of a window of another protection domain: %w", transport.ErrInvalid)
	case b.Access == 0 || b.Access&^remoteRights != 0:
		return fmt.Errorf("a window with rights %v: %w", b.Access, transport.ErrInvalid)
	case b.Length == 0:
		return fmt.Errorf("a window of no bytes: %w", transport.ErrInvalid)
	}
	var right transport.Access
	if b.Access != transport.RemoteRead {
		right = transport.LocalWrite
	}
	local, _, err := q.checkLocal([]transport.SGE{{MR: b.MR, Offset: b.Offset, Length: b.Length}}, right)
	switch {
	case err != nil:
		return err
	case local[0].mr.access&transport.BindWindow == 0:
		return fmt.Errorf("a window of a region with rights %v: %w", local[0].mr.access, transport.ErrInvalid)
	case b.Access&transport.RemoteAtomic != 0 && !aligned(local[0].mr.buf, b.Offset):
		return fmt.Errorf("a window for Atomics that does not begin at a multiple of %d: %w", wordSize,
			transport.ErrInvalid)
	}
	w.window, w.access, w.local = m, b.Access, local
	return nil
}

// carryOut carries out a Bind or an Invalidate.
func (q *qp) carryOut(w *sendWQE) {
	var err error
	if w.op == transport.OpInvalidate {
		if m := q.boundTo(w.key); m != nil {
			m.unbind()
		} else {
			err = fmt.Errorf("the window of key %#x is not bound any more: %w", w.key, transport.ErrInvalid)
		}
	} else if _, err = w.local[0].bytes(); err == nil && w.window.gone {
		err = fmt.Errorf("the window is gone: %w", transport.ErrInvalid)
	}
	if err != nil {
		err = fmt.Errorf("%s: request %d: %w", q, w.id, err)
		q.cutPeer(fmt.Errorf("rank %d gave up: %w", q.dev.rank(), transport.ErrPeerLost))
		q.fail(w, transport.StatusLocalProt, err)
		return
	}
	if w.op == transport.OpBind {
		w.window.bind(q, w)
	}
	w.begun, w.done = true, true
}
