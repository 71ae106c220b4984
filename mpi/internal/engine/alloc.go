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

// allocated is all that the user has. A message does not look here: the rendezvous registers what it
// announces for as long as it is announced, whatever memory that is (docs/internals/adr/0008).
type allocated struct {
	e    *Engine
	list []*Memory // in the order of addresses
	// all that was ever allocated lies between these addresses, for those who do not have the lock
	low, high atomic.Uintptr
}

// Alloc gives n bytes (n > 0) of zeroed memory on pages of its own. Peers have no right to the region: nobody
// is told its key. It is Mappable, so that peers on this host reach directly what is announced out of it.
func (e *Engine) Alloc(n int) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return nil, e.stopped
	}
	mr, err := e.fabrics[0].pd.Alloc(n, transport.LocalWrite|transport.Mappable)
	if err != nil {
		return nil, err
	}
	m := &Memory{mr: mr, bytes: mr.Bytes()}
	_, i := e.allocated.find(m.bytes)
	e.allocated.list = slices.Insert(e.allocated.list, i, m)
	e.allocated.widen(m.bytes)
	return m.bytes, nil
}

// widen has the bounds enclose memory.
func (l *allocated) widen(mem []byte) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if low := l.low.Load(); low == 0 || at < low {
		l.low.Store(at)
	}
	if end := at + uintptr(len(mem)); end > l.high.Load() {
		l.high.Store(end)
	}
}

// mayHave tells whether memory may be of the list, without the lock.
func (l *allocated) mayHave(mem []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return at >= l.low.Load() && at < l.high.Load()
}

// Free gives back what Alloc gave. It refuses, with ErrBuffer, what is anything else, and what is in use.
func (e *Engine) Free(b []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, i := e.allocated.find(b)
	switch {
	case m == nil:
		return fmt.Errorf("%w: it does not come from Alloc, or has been freed", ErrBuffer)
	case unsafe.SliceData(b) != unsafe.SliceData(m.bytes) || len(b) != len(m.bytes):
		return fmt.Errorf("%w: %d bytes of the %d that Alloc gave; free the whole slice", ErrBuffer, len(b),
			len(m.bytes))
	}
	if e.allocated.inUse(m) != nil && e.stopped == nil {
		e.progress.poll() // what uses it may have been given up by its caller, and nobody wait for it
	}
	if err := e.allocated.inUse(m); err != nil {
		return err
	}
	e.allocated.list = slices.Delete(e.allocated.list, i, i+1)
	return m.mr.Deregister()
}

// inUse says what of this rank still uses memory; nil if nothing does.
func (l *allocated) inUse(m *Memory) error {
	if m.pins > 0 {
		return fmt.Errorf("%w: a collective or a persistent request still uses it; let the one end, free "+
			"the other", ErrBuffer)
	}
	for r := range l.e.requests.underWay() {
		vec := r.vec
		if r.view != nil {
			vec = [][]byte{r.view.memory()}
		}
		for _, b := range vec {
			if other, _ := l.find(b); other != m {
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

// PinMemory keeps the memory that buf is of from being freed until Drop, for a use that is no request; nil if
// Alloc did not give it.
func (e *Engine) PinMemory(buf []byte) *Memory {
	if len(buf) == 0 || !e.allocated.mayHave(buf) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m, _ := e.allocated.find(buf)
	if m != nil {
		m.pins++
	}
	return m
}

// UnpinMemory ends a PinMemory.
func (e *Engine) UnpinMemory(m *Memory) {
	if m == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m.pins--
}

// detachAll leaves to the process what the user has not freed.
func (l *allocated) detachAll() (err error) {
	for _, m := range l.list {
		err = errors.Join(err, m.mr.Detach())
	}
	l.list = nil
	return err
}

// find gives the memory in which b begins, or nil, and its place in the list, or the place where it belongs.
func (a *allocated) find(b []byte) (*Memory, int) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	start := func(i int) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(a.list[i].bytes))) }
	i := sort.Search(len(a.list), func(i int) bool { return at < start(i)+uintptr(len(a.list[i].bytes)) })
	if i == len(a.list) || at < start(i) {
		return nil, i
	}
	return a.list[i], i
}
