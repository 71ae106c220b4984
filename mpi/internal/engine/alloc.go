package engine

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// Memory is registered memory that Alloc gave to the user.
type Memory struct {
	mr    transport.MR
	bytes []byte
	pins  int // by PinMemory
}

// memory is all that the user of a rank has. A message does not look here: the rendezvous registers what it
// announces for as long as it is announced, whatever memory that is (docs/internals/adr/0008).
type memory struct {
	mu   orderedMutex // a leaf in the order of locks; it guards the domain too
	pd   transport.PD
	list []*Memory // in the order of addresses
	// all that was ever allocated lies between these addresses, for those who do not have the lock
	low, high atomic.Uintptr
}

// Alloc gives n bytes (n > 0) of zeroed memory on pages of its own. Peers have no right to the region: nobody
// is told its key. It is Mappable, so that peers on this host reach directly what is announced out of it.
func (h *Hub) Alloc(n int) ([]byte, error) {
	if err := h.stopped(); err != nil {
		return nil, err
	}
	l := &h.memory
	l.mu.Lock()
	defer l.mu.Unlock()
	mr, err := l.pd.Alloc(n, transport.LocalWrite|transport.Mappable)
	if err != nil {
		return nil, err
	}
	m := &Memory{mr: mr, bytes: mr.Bytes()}
	_, i := l.find(m.bytes)
	l.list = slices.Insert(l.list, i, m)
	l.widen(m.bytes)
	return m.bytes, nil
}

// widen has the bounds enclose memory.
func (l *memory) widen(mem []byte) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if low := l.low.Load(); low == 0 || at < low {
		l.low.Store(at)
	}
	if end := at + uintptr(len(mem)); end > l.high.Load() {
		l.high.Store(end)
	}
}

// mayHave tells whether memory may be of the list, without the lock.
func (l *memory) mayHave(mem []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return at >= l.low.Load() && at < l.high.Load()
}

// has tells whether memory is of the list.
func (l *memory) has(mem []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, _ := l.find(mem)
	return m != nil
}

// Free gives back what Alloc gave. It refuses, with ErrBuffer, what is anything else, and what is in use.
func (h *Hub) Free(b []byte) error {
	m, err := h.memory.whole(b)
	if err != nil {
		return err
	}
	for e := range h.each() {
		if err := e.stillUses(m); err != nil {
			return err
		}
	}
	l := &h.memory
	l.mu.Lock()
	defer l.mu.Unlock()
	n, i := l.find(b)
	if n != m {
		return errNotAllocated
	}
	if m.pins > 0 {
		return errPinned
	}
	l.list = slices.Delete(l.list, i, i+1)
	return m.mr.Deregister()
}

var (
	errNotAllocated = fmt.Errorf("%w: it does not come from Alloc, or has been freed", ErrBuffer)
	errPinned       = fmt.Errorf("%w: a collective or a persistent request still uses it; let the one end, "+
		"free the other", ErrBuffer)
)

// whole gives the memory that b is all of.
func (l *memory) whole(b []byte) (*Memory, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, _ := l.find(b)
	switch {
	case m == nil:
		return nil, errNotAllocated
	case unsafe.SliceData(b) != unsafe.SliceData(m.bytes) || len(b) != len(m.bytes):
		return nil, fmt.Errorf("%w: %d bytes of the %d that Alloc gave; free the whole slice", ErrBuffer,
			len(b),
			len(m.bytes))
	}
	return m, nil
}

// stillUses says what of the endpoint still uses memory; nil if nothing does.
func (e *Engine) stillUses(m *Memory) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped == nil && (e.hub.memory.pinned(m) || e.usesLocked(m) != nil) {
		e.progress.poll() // what uses it may have been given up by its caller, and nobody wait for it
	}
	return e.usesLocked(m)
}

func (l *memory) pinned(m *Memory) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return m.pins > 0
}

// usesLocked says which message of the endpoint uses memory; nil if none does.
func (e *Engine) usesLocked(m *Memory) error {
	e.mu.assertHeld()
	for r := range e.Requests.underWay() {
		vec := r.vec
		if r.view != nil {
			vec = [][]byte{r.view.memory()}
		}
		for _, b := range vec {
			if !m.contains(b) {
				continue
			}
			what, tag := "a send to", r.msg.Tag
			if r.kind == kindRecv {
				what, tag = "a receive from", r.posted.Tag
			}
			return fmt.Errorf("%w: %s rank %d of the world with tag %d still uses it; wait for that first",
				ErrBuffer, what, r.rank, tag)
		}
	}
	return nil
}

// contains tells whether b begins in the memory.
func (m *Memory) contains(b []byte) bool {
	at, start := uintptr(unsafe.Pointer(unsafe.SliceData(b))), m.start()
	return at >= start && at < start+uintptr(len(m.bytes))
}

func (m *Memory) start() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))) }

// PinMemory keeps the memory that buf is of from being freed until UnpinMemory, for a use that is no request;
// nil if Alloc did not give it.
func (h *Hub) PinMemory(buf []byte) *Memory {
	l := &h.memory
	if len(buf) == 0 || !l.mayHave(buf) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m, _ := l.find(buf)
	if m != nil {
		m.pins++
	}
	return m
}

// UnpinMemory ends a PinMemory.
func (h *Hub) UnpinMemory(m *Memory) {
	if m == nil {
		return
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	m.pins--
}

// detachAll leaves to the process what the user has not freed.
func (l *memory) detachAll() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.list {
		err = errors.Join(err, m.mr.Detach())
	}
	l.list = nil
	return err
}

// find gives the memory in which b begins, or nil, and its place in the list, or the place where it belongs.
func (l *memory) find(b []byte) (*Memory, int) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	i := sort.Search(len(l.list), func(i int) bool {
		return at < l.list[i].start()+uintptr(len(l.list[i].bytes))
	})
	if i == len(l.list) || at < l.list[i].start() {
		return nil, i
	}
	return l.list[i], i
}
