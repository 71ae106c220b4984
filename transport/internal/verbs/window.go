package verbs

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Window is a memory window. It has an entry of its own in the table of regions, so that a peer's key finds
// it like a region.
type Window struct {
	pd    *PD
	entry *Region       // nil once the window is deallocated
	key   transport.Key // of the last posted Bind
	asked *Bindings     // the queue pair of that Bind
	of    *Region       // to which it is bound; nil while it is not
	bound *Bindings     // the queue pair to which it is bound
}

// Bindings are the windows that are bound to a queue pair.
type Bindings struct {
	QP      transport.QPN
	windows map[*Window]struct{}
}

// AllocMW makes a window.
func (p *PD) AllocMW() (transport.MW, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	t := p.table
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.entry()
	if err != nil {
		return nil, err
	}
	m := &Window{pd: p, entry: r}
	r.window = m
	r.pd.Store(p.windowDomain)
	p.windows++
	return m, nil
}

// Key returns what the peer needs to use the window.
func (m *Window) Key() transport.Key { return m.key }

// Deallocate ends the window.
func (m *Window) Deallocate() error {
	r := m.entry
	if r == nil {
		return fmt.Errorf("%w: the window was deallocated before", transport.ErrInvalid)
	}
	m.Unbind()
	m.entry, m.key, m.asked = nil, 0, nil
	m.pd.windows--
	r.window = nil
	r.pd.Store(nil)
	r.table.put(r)
	return nil
}

// bind carries out a Bind.
func (m *Window) bind(b *Bindings, w *Request) {
	m.Unbind()
	p, r := w.Local[0], m.entry
	r.Mem, r.Rights = p.Region.Mem[p.Off:][:p.Len:p.Len], w.Access
	m.of, m.bound = p.Region, b
	r.table.memory.Publish(r, m.pd.ID, b.QP, transport.Key(w.Other))
	r.key.Store(w.Other)
	m.of.windows++
	if b.windows == nil {
		b.windows = map[*Window]struct{}{}
	}
	b.windows[m] = struct{}{}
}

// Unbind takes the window's key out of use.
func (m *Window) Unbind() {
	if m.of == nil {
		return
	}
	r := m.entry
	if m.key == r.Key() {
		m.key, m.asked = 0, nil
	}
	r.key.Store(0)
	_ = r.table.memory.Revoke(r, false, false) // nothing is freed
	r.Mem = nil
	m.of.windows--
	delete(m.bound.windows, m)
	m.of, m.bound = nil, nil
}

// UnbindAll ends every binding to a queue pair that has ended.
func (b *Bindings) UnbindAll() {
	for m := range b.windows {
		m.Unbind()
	}
}

// Window returns the window with this key that is bound to a queue pair; nil if there is none.
func (p *PD) Window(b *Bindings, key transport.Key) *Window {
	if m := p.window(key); m != nil && m.bound == b && m.entry.Key() == key {
		return m
	}
	return nil
}

// awaited reports whether a key belongs to a Bind that was posted to a queue pair and is not yet carried out.
func (p *PD) awaited(b *Bindings, key transport.Key) bool {
	m := p.window(key)
	return key != 0 && m != nil && m.key == key && m.asked == b
}

// window returns the window of the domain whose entry has the index in key; nil if there is none.
func (p *PD) window(key transport.Key) *Window {
	i, all := Index(key), p.table.list()
	if i >= len(all) || all[i].pd.Load() != p.windowDomain {
		return nil
	}
	return all[i].window
}

// checkWindow returns an error for an invalid Bind or Invalidate.
func (p *PD) checkWindow(b *Bindings, wr *transport.SendWR) error {
	if len(wr.Local) > 0 || len(wr.Remote) > 0 || wr.Flags&transport.FlagInline != 0 {
		return fmt.Errorf("%w: a Bind or Invalidate with elements, segments or inline", transport.ErrInvalid)
	}
	if wr.Op == transport.OpBind {
		return p.checkBind(wr.Bind)
	}
	if p.Window(b, wr.Key) == nil && !p.awaited(b, wr.Key) {
		return fmt.Errorf("%w: no window that is bound to this queue pair has the key %#x",
			transport.ErrInvalid, uint64(wr.Key))
	}
	return nil
}

func (p *PD) checkBind(b *transport.Bind) error {
	if b == nil {
		return fmt.Errorf("%w: a Bind of nothing", transport.ErrInvalid)
	}
	m, ok := b.Window.(*Window)
	if !ok || m == nil || m.entry == nil || m.pd != p {
		return fmt.Errorf("%w: a Bind of no window of this protection domain", transport.ErrInvalid)
	}
	if b.Access == 0 || b.Access&^RemoteRights != 0 {
		return fmt.Errorf("%w: a window with rights %v; one or more of %v are possible",
			transport.ErrInvalid, b.Access, RemoteRights)
	}
	need := transport.BindWindow
	if b.Access != transport.RemoteRead {
		need |= transport.LocalWrite
	}
	r, err := p.Local(transport.SGE{MR: b.MR, Offset: b.Offset, Length: b.Length}, need)
	if err != nil {
		return fmt.Errorf("a window's region: %w", err)
	}
	if b.Length == 0 {
		return fmt.Errorf("%w: a window of no bytes", transport.ErrInvalid)
	}
	if b.Access&transport.RemoteAtomic != 0 && !Aligned(r.Mem, b.Offset) {
		return fmt.Errorf("%w: a window for Atomics that does not begin at a multiple of %d",
			transport.ErrInvalid, WordSize)
	}
	return nil
}

// postBind fills in the fields of a Bind, and gives the window its new key.
func (p *PD) postBind(by *Bindings, w *Request, b *transport.Bind) {
	m, r, t := b.Window.(*Window), b.MR.(*Region), p.table
	t.mu.Lock()
	for m.key, m.asked = 0, by; m.key == 0; { // 0 stands for no key
		m.key = m.entry.newKey(t.keys.Uint64())
	}
	t.mu.Unlock()
	w.window, w.Access, w.Other = m, b.Access, uint64(m.key)
	w.Local = append(w.Local, Piece{r, r.Key(), b.Offset, b.Length})
}

// CarryOut carries out a Bind or an Invalidate. It fails if the window or region of the request no longer
// exists.
func (p *PD) CarryOut(b *Bindings, w *Request) error {
	var cause string
	switch m := p.Window(b, transport.Key(w.Other)); {
	case w.Op == transport.OpInvalidate && m != nil:
		m.Unbind()
	case w.Op == transport.OpInvalidate:
		cause = fmt.Sprintf("no window that is bound to this queue pair has the key %#x any more", w.Other)
	case w.window.entry == nil:
		cause = "the window of a posted Bind was deallocated"
	case !w.Alive():
		cause = "the region of a posted Bind was deregistered"
	default:
		w.window.bind(b, w)
	}
	if cause != "" {
		return fmt.Errorf("%w: %s", transport.ErrInvalid, cause)
	}
	w.window = nil
	return nil
}
