package tcp

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// A key is the index of its region in the device's table (20 bits), a generation that steps with every use of that entry (8),
// and random bits drawn anew for every registration (36). See docs/adr/0002.
const (
	indexBits      = 20
	generationBits = 8
	indexMask      = 1<<indexBits - 1
)

// pd is a protection domain.
type pd struct {
	dev     *Device
	regions int
	windows int
	qps     atomic.Int32
	closed  bool

	// ofWindows is the domain that entries of this one's windows have, which is no queue pair's: so find looks closer at windows, and at
	// regions no closer than without them.
	ofWindows *pd
}

// region is a registered piece of memory.
type region struct {
	dev        *Device
	pd         atomic.Pointer[pd] // nil in a free entry; of a region of another domain only this and the key may be looked at
	mem        []byte
	key        atomic.Uint64
	index      int
	generation uint8
	access     transport.Access
	mapped     bool // the memory is ours to unmap
	windows    int  // bound to it
	next       *region
	window     *window // whose entry this is: what is bound, and not a region of its own
}

// regionTable finds regions by key. Domains are used by different goroutines at the same time: to find needs no lock, since a region
// changes only while its domain's user has it, and the list of them only grows.
type regionTable struct {
	all atomic.Pointer[[]*region]

	mu   sync.Mutex // guards changes of the table, free and keys
	free *region
	keys *mathrand.ChaCha8
}

// Register makes buf reachable.
func (p *pd) Register(buf []byte, access transport.Access) (transport.MR, error) {
	return p.register(buf, access, false)
}

// Alloc registers fresh memory.
func (p *pd) Alloc(n int, access transport.Access) (transport.MR, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%w: a region of %d bytes", transport.ErrInvalid, n)
	}
	mem, err := sys.Map(n)
	if err != nil {
		return nil, fmt.Errorf("memory for a region of %d bytes: %w", n, err)
	}
	mr, err := p.register(mem, access, true)
	if err != nil {
		return nil, errors.Join(err, sys.Unmap(mem))
	}
	return mr, nil
}

func (p *pd) register(buf []byte, access transport.Access, mapped bool) (transport.MR, error) {
	if p.closed || p.dev.closed.Load() {
		return nil, fmt.Errorf("protection domain: %w", transport.ErrDeviceGone)
	}
	if len(buf) == 0 {
		return nil, fmt.Errorf("%w: a region of no bytes", transport.ErrInvalid)
	}
	if access&^rights != 0 {
		return nil, fmt.Errorf("%w: unknown rights %v", transport.ErrInvalid, access)
	}
	if access&transport.RemoteAtomic != 0 && !aligned(buf, 0) {
		return nil, fmt.Errorf("%w: memory for Atomics that does not begin at a multiple of %d", transport.ErrInvalid, wordSize)
	}
	t := &p.dev.regions
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.entry(p.dev)
	if err != nil {
		return nil, err
	}
	if access&(transport.RemoteWrite|transport.RemoteAtomic) != 0 {
		access |= transport.LocalWrite
	}
	r.key.Store(uint64(r.newKey(t.keys.Uint64())))
	r.mem, r.access, r.mapped, r.next = buf, access, mapped, nil
	r.pd.Store(p)
	p.regions++
	return r, nil
}

const rights = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic | transport.BindWindow

// entry takes a free entry of the table. The table's lock is held.
func (t *regionTable) entry(d *Device) (*region, error) {
	if r := t.free; r != nil {
		t.free = r.next
		return r, nil
	}
	return t.newEntry(d)
}

func (t *regionTable) newEntry(d *Device) (*region, error) {
	all := t.list()
	if len(all) > indexMask {
		return nil, fmt.Errorf("more than %d regions and windows", indexMask+1)
	}
	r := &region{dev: d, index: len(all), generation: uint8(t.keys.Uint64())}
	all = append(all, r)
	t.all.Store(&all)
	return r, nil
}

// put gives an entry back.
func (t *regionTable) put(r *region) {
	t.mu.Lock()
	r.next, t.free = t.free, r
	t.mu.Unlock()
}

// newKey makes the next key of an entry, with what was drawn for it.
func (r *region) newKey(random uint64) transport.Key {
	r.generation++
	return transport.Key(uint64(r.index) | uint64(r.generation)<<indexBits | random<<(indexBits+generationBits))
}

// Close releases the domain.
func (p *pd) Close() error {
	if p.regions > 0 || p.windows > 0 || p.qps.Load() > 0 {
		return fmt.Errorf("%w: the protection domain has %d regions, %d windows and %d queue pairs", transport.ErrInvalid, p.regions,
			p.windows, p.qps.Load())
	}
	p.closed = true
	return nil
}

func (r *region) Bytes() []byte            { return r.mem }
func (r *region) Key() transport.Key       { return transport.Key(r.key.Load()) }
func (r *region) Access() transport.Access { return r.access }

// Deregister takes the key out of use. A frame that is being placed fails when its next piece comes.
func (r *region) Deregister() error {
	p := r.pd.Load()
	if p == nil {
		return fmt.Errorf("%w: the region is not registered", transport.ErrInvalid)
	}
	if r.windows > 0 {
		return fmt.Errorf("%w: %d windows are bound to the region; invalidate or deallocate them first", transport.ErrInvalid, r.windows)
	}
	mem, mapped := r.mem, r.mapped
	p.regions--
	r.mem, r.mapped = nil, false
	r.key.Store(0)
	r.pd.Store(nil)
	r.dev.regions.put(r)
	if mapped {
		return sys.Unmap(mem)
	}
	return nil
}

// Detach takes the key out of use, and leaves the memory to the process.
func (r *region) Detach() error {
	if r.windows == 0 {
		r.mapped = false
	}
	return r.Deregister()
}

// find checks what a peer asks for, in the order of the specification: key, domain, right, bounds.
func (t *regionTable) find(q *qp, key transport.Key, need transport.Access, offset, length uint64) (*region, error) {
	i, all := int(uint64(key)&indexMask), t.list()
	if i >= len(all) || all[i].Key() != key {
		return nil, fmt.Errorf("%w: no region has the key %#x", transport.ErrAccess, uint64(key))
	}
	r := all[i]
	if owner := r.pd.Load(); owner != q.pd {
		if owner != q.pd.ofWindows {
			return nil, fmt.Errorf("%w: the region of key %#x is of another protection domain", transport.ErrAccess, uint64(key))
		}
		if r.window.qp != q {
			return nil, fmt.Errorf("%w: the window of key %#x is not bound to this queue pair", transport.ErrAccess, uint64(key))
		}
	}
	if r.access&need != need {
		return nil, fmt.Errorf("%w: the region of key %#x has rights %v, not %v", transport.ErrAccess, uint64(key), r.access, need)
	}
	if n := uint64(len(r.mem)); offset > n || length > n-offset {
		return nil, fmt.Errorf("%w: %d bytes at %d of the region of key %#x, which has %d", transport.ErrAccess, length, offset,
			uint64(key), n)
	}
	return r, nil
}

// local checks an element of a gather or scatter list.
func (p *pd) local(s transport.SGE, need transport.Access) (*region, error) {
	r, ok := s.MR.(*region)
	if !ok || r == nil {
		return nil, fmt.Errorf("%w: an element names no region of this device", transport.ErrInvalid)
	}
	switch owner := r.pd.Load(); {
	case owner == nil:
		return nil, fmt.Errorf("%w: an element names no registered region of this device", transport.ErrInvalid)
	case owner != p:
		return nil, fmt.Errorf("%w: an element's region is of another protection domain", transport.ErrInvalid)
	case r.access&need != need:
		return nil, fmt.Errorf("%w: an element's region has rights %v, not %v", transport.ErrInvalid, r.access, need)
	case s.Offset < 0 || s.Length < 0 || s.Offset > len(r.mem) || s.Length > len(r.mem)-s.Offset:
		return nil, fmt.Errorf("%w: an element of %d bytes at %d of a region of %d", transport.ErrInvalid, s.Length, s.Offset,
			len(r.mem))
	}
	return r, nil
}

func (t *regionTable) list() []*region {
	if all := t.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (t *regionTable) release() error {
	var errs []error
	for _, r := range t.list() {
		if r.pd.Load() != nil && r.window == nil {
			errs = append(errs, r.Deregister())
		}
	}
	return errors.Join(errs...)
}
