package shm

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
	maxEntries     = 1 << indexBits
)

// pd is a protection domain.
type pd struct {
	dev     *Device
	id      uint32 // its own in the device, and known to peers
	regions int
	windows int
	qps     atomic.Int32
	closed  bool
}

// region is a registered piece of memory, or what a window is bound to.
type region struct {
	dev        *Device
	pd         atomic.Pointer[pd] // nil in a free entry; of a region of another domain only this and the key may be looked at
	entry      *entry             // what peers see of it
	mem        []byte
	key        atomic.Uint64
	index      int
	generation uint8
	access     transport.Access
	shared     bool // the memory lies in the arena
	owned      span // of PD.Alloc: the memory goes back with the region
	mapped     bool // likewise, where no peer has any right to it, and it is not of the arena
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
	r, err := p.register(buf, access, span{})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Alloc registers fresh memory.
func (p *pd) Alloc(n int, access transport.Access) (transport.MR, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%w: a region of %d bytes", transport.ErrInvalid, n)
	}
	if access&(remoteRights|transport.BindWindow) == 0 {
		return p.allocPrivate(n, access)
	}
	s, err := p.dev.arena.alloc(n)
	if err != nil {
		return nil, fmt.Errorf("memory for a region of %d bytes: %w", n, err)
	}
	r, err := p.register(p.dev.arena.bytes(s)[:n:n], access, s)
	if err != nil {
		return nil, errors.Join(err, p.dev.arena.put(s, nil))
	}
	return r, nil
}

// allocPrivate is Alloc of memory that no peer will ever reach: it has no more pages than are used.
func (p *pd) allocPrivate(n int, access transport.Access) (transport.MR, error) {
	mem, err := sys.Map(n)
	if err != nil {
		return nil, fmt.Errorf("memory for a region of %d bytes: %w", n, err)
	}
	r, err := p.register(mem, access, span{})
	if err != nil {
		return nil, errors.Join(err, sys.Unmap(mem))
	}
	r.mapped = true
	return r, nil
}

func (p *pd) register(buf []byte, access transport.Access, owned span) (*region, error) {
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
	r.mem, r.access, r.owned, r.next = buf, access, owned, nil
	_, r.shared = p.dev.arena.offset(buf)
	key := r.newKey(t.keys.Uint64())
	r.publish(p.id, 0, key)
	r.key.Store(uint64(key))
	r.pd.Store(p)
	p.regions++
	return r, nil
}

const rights = transport.LocalWrite | remoteRights | transport.BindWindow

const remoteRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

// publish lets peers find the region, if it gives them any right: the key comes last.
func (r *region) publish(domain uint32, bound transport.QPN, key transport.Key) {
	if r.access&remoteRights == 0 {
		return
	}
	e := r.entry
	where := addressOf(r.mem)
	kind := uint64(r.access)
	if off, ok := r.dev.arena.offset(r.mem); ok {
		where = uint64(off)
		kind |= entryShared
	}
	sys.StoreRelease(&e.kind, kind)
	sys.StoreRelease(&e.where, where)
	sys.StoreRelease(&e.length, uint64(len(r.mem)))
	sys.StoreRelease(&e.owner, uint64(domain)|uint64(bound)<<32)
	sys.StoreRelease(&e.key, uint64(key))
}

// revoke takes the key from the peers, and gives those that may still be placing bytes by it.
func (r *region) revoke() []writer {
	if r.access&remoteRights == 0 {
		return nil
	}
	sys.StoreRelease(&r.entry.key, 0)
	if !r.shared || r.access&(transport.RemoteWrite|transport.RemoteAtomic) == 0 {
		return nil // nobody writes there, and who reads looks at the key again
	}
	return r.dev.writers()
}

// entry takes a free entry of the table. The table's lock is held.
func (t *regionTable) entry(d *Device) (*region, error) {
	if r := t.free; r != nil {
		t.free = r.next
		return r, nil
	}
	all := t.list()
	if len(all) > indexMask {
		return nil, fmt.Errorf("more than %d regions and windows", indexMask+1)
	}
	at := int64(len(all)) * entrySize
	if at%leastPage == 0 {
		d.arena.mu.Lock()
		err := d.arena.reserve(sys.Reserve, at, leastPage)
		d.arena.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("an entry of the table of keys: %w", err)
		}
	}
	r := &region{dev: d, index: len(all), generation: uint8(t.keys.Uint64()), entry: entryAt(d.arena.mem, len(all))}
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

// Deregister takes the key out of use.
func (r *region) Deregister() error {
	p := r.pd.Load()
	if p == nil {
		return fmt.Errorf("%w: the region is not registered", transport.ErrInvalid)
	}
	if r.windows > 0 {
		return fmt.Errorf("%w: %d windows are bound to the region; invalidate or deallocate them first", transport.ErrInvalid, r.windows)
	}
	r.key.Store(0)
	writers := r.revoke()
	mem, owned, mapped := r.mem, r.owned, r.mapped
	p.regions--
	r.mem, r.owned, r.mapped = nil, span{}, false
	r.pd.Store(nil)
	r.dev.regions.put(r)
	if owned.n > 0 {
		return r.dev.arena.put(owned, writers)
	}
	if mapped {
		return sys.Unmap(mem)
	}
	return nil
}

// Detach takes the key out of use, and leaves the memory to the process.
func (r *region) Detach() error {
	if r.windows == 0 {
		if r.owned.n > 0 {
			r.dev.arena.keep(r.owned)
		}
		r.owned, r.mapped = span{}, false
	}
	return r.Deregister()
}

// find checks what a peer asks for, in the order of the specification: key, domain, right, bounds.
func (t *regionTable) find(q *qp, key transport.Key, need transport.Access, offset, length uint64) (*region, error) {
	i, all := int(uint64(key)&indexMask), t.list()
	if i >= len(all) || key == 0 || all[i].Key() != key {
		return nil, errKey(key)
	}
	r := all[i]
	domain, bound := uint32(0), transport.QPN(0)
	if owner := r.pd.Load(); owner == q.pd { // else no more may be looked at
		domain = owner.id
		if r.window != nil {
			bound = r.window.qp.num
		}
	}
	if err := q.may(key, domain, bound, q.pd.id, q.num, r.access, need, offset, length, uint64(len(r.mem))); err != nil {
		return nil, err
	}
	return r, nil
}

func errKey(key transport.Key) error {
	return fmt.Errorf("%w: no region has the key %#x", transport.ErrAccess, uint64(key))
}

// may checks all of an access but the key itself: the domain, or the queue pair that a window is bound to, then right and bounds.
func (q *qp) may(key transport.Key, domain uint32, bound transport.QPN, ofDomain uint32, ofQP transport.QPN, access, need transport.Access,
	offset, length, size uint64) error {
	switch {
	case bound == 0 && domain != ofDomain:
		return fmt.Errorf("%w: the region of key %#x is of another protection domain", transport.ErrAccess, uint64(key))
	case bound != 0 && bound != ofQP:
		return fmt.Errorf("%w: the window of key %#x is not bound to this queue pair", transport.ErrAccess, uint64(key))
	case access&need != need:
		return fmt.Errorf("%w: the region of key %#x has rights %v, not %v", transport.ErrAccess, uint64(key), access, need)
	case offset > size || length > size-offset:
		return fmt.Errorf("%w: %d bytes at %d of the region of key %#x, which has %d", transport.ErrAccess, length, offset, uint64(key), size)
	}
	return nil
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

// release takes every key out of use.
func (t *regionTable) release() error {
	var errs []error
	for _, r := range t.list() {
		if r.pd.Load() != nil && r.window == nil {
			r.windows = 0
			errs = append(errs, r.Deregister())
		}
	}
	return errors.Join(errs...)
}
