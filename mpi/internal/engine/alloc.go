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
	pins  int // calls of Pin that no Unpin has ended
}

// Allocations is all memory that Alloc gave to a rank's program. Messages do not look here: the rendezvous
// registers each announced buffer while it is announced, wherever it comes from (docs/internals/adr/0008).
type Allocations struct {
	hub  *Hub
	mu   orderedMutex // guards pd too
	pd   transport.PD
	list []*Memory // sorted by address
	// bounds of all memory ever allocated; may be read without the lock
	low, high atomic.Uintptr
}

// Alloc returns n bytes (n > 0) of zeroed memory on pages of its own. Peers have no right to the region: its
// key is never sent. The region is Mappable, so peers on this host map it and read announced messages there.
func (l *Allocations) Alloc(n int) ([]byte, error) {
	if err := l.hub.Stopped(); err != nil {
		return nil, err
	}
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

// widen extends the bounds to enclose mem.
func (l *Allocations) widen(mem []byte) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if low := l.low.Load(); low == 0 || at < low {
		l.low.Store(at)
	}
	if end := at + uintptr(len(mem)); end > l.high.Load() {
		l.high.Store(end)
	}
}

// mayHave reports whether mem may be in the list. It takes no lock.
func (l *Allocations) mayHave(mem []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return at >= l.low.Load() && at < l.high.Load()
}

// has reports whether mem is in the list.
func (l *Allocations) has(mem []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, _ := l.find(mem)
	return m != nil
}

// Free frees memory of Alloc. It returns ErrBuffer for any other memory, and for memory in use.
func (l *Allocations) Free(b []byte) error {
	m, err := l.whole(b)
	if err != nil {
		return err
	}
	for e := range l.hub.each() {
		if err := e.stillUses(m); err != nil {
			return err
		}
	}
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
	errPinned       = fmt.Errorf("%w: a collective or a persistent request still uses it; wait for the "+
		"collective, or free the request, first", ErrBuffer)
)

// whole returns the memory that b covers entirely.
func (l *Allocations) whole(b []byte) (*Memory, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, _ := l.find(b)
	switch {
	case m == nil:
		return nil, errNotAllocated
	case unsafe.SliceData(b) != unsafe.SliceData(m.bytes) || len(b) != len(m.bytes):
		return nil, fmt.Errorf("%w: %d bytes of the %d that Alloc gave; free the whole slice", ErrBuffer,
			len(b), len(m.bytes))
	}
	return m, nil
}

// stillUses returns an error that names the operation of the endpoint that uses m, or nil.
func (e *Engine) stillUses(m *Memory) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped == nil && (e.hub.Memory.pinned(m) || e.usesLocked(m) != nil) {
		e.progress.poll() // the operation may be over but for a pass, if nobody waits for it any more
	}
	return e.usesLocked(m)
}

func (l *Allocations) pinned(m *Memory) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return m.pins > 0
}

// usesLocked is stillUses without a pass.
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
			return fmt.Errorf("%w: %s still uses it; wait for that first", ErrBuffer, r.text())
		}
	}
	return nil
}

// text names a send or a receive in errors.
func (r *request) text() string {
	if r.kind != kindRecv {
		return fmt.Sprintf("a send to rank %d of the world with tag %d", r.rank, r.msg.Tag)
	}
	source, tag := "any rank", "any tag"
	if r.posted.Source != AnySource {
		source = fmt.Sprintf("rank %d of the world", r.posted.Source)
	}
	if r.posted.Tag != AnyTag {
		tag = fmt.Sprintf("tag %d", r.posted.Tag)
	}
	return "a receive from " + source + " with " + tag
}

// contains reports whether b begins in the memory.
func (m *Memory) contains(b []byte) bool {
	at, start := uintptr(unsafe.Pointer(unsafe.SliceData(b))), m.start()
	return at >= start && at < start+uintptr(len(m.bytes))
}

func (m *Memory) start() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))) }

// Pin prevents Free of the memory that contains buf until Unpin, for a use without a request. It returns nil
// if buf is not memory of Alloc.
func (l *Allocations) Pin(buf []byte) *Memory {
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

// Unpin ends a Pin.
func (l *Allocations) Unpin(m *Memory) {
	if m == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.pins--
}

// detachAll leaves memory that the program has not freed to the process.
func (l *Allocations) detachAll() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.list {
		err = errors.Join(err, m.mr.Detach())
	}
	l.list = nil
	return err
}

// find returns the memory in which b begins, or nil, and its index in the list, or the index at which to
// insert it.
func (l *Allocations) find(b []byte) (*Memory, int) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	i := sort.Search(len(l.list), func(i int) bool {
		return at < l.list[i].start()+uintptr(len(l.list[i].bytes))
	})
	if i == len(l.list) || at < l.list[i].start() {
		return nil, i
	}
	return l.list[i], i
}
