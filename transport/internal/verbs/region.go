package verbs

import (
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"unsafe"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
)

// A key is the index of its region in the device's table (20 bits), a generation that steps with every use of
// that entry (8), and random bits drawn anew for every registration (36). See docs/internals/adr/0008.
const (
	IndexBits      = 20
	GenerationBits = 8

	MaxRegions = 1 << IndexBits // regions of a device
)

// Index returns the index of a key's entry in the table.
func Index(k transport.Key) int { return int(uint64(k) & (MaxRegions - 1)) }

// WordSize is the size and the alignment of the words of Atomics.
const WordSize = 8

// Aligned reports whether the byte at an offset, which must exist, is aligned for a word.
func Aligned(mem []byte, off int) bool { return uintptr(unsafe.Pointer(&mem[off]))%WordSize == 0 }

// Memory is the provider's part of regions.
type Memory interface {
	// Closed reports whether the device is closed: nothing can be registered any more.
	Closed() bool

	// NewEntry is called before the first use of an entry of the table.
	NewEntry(index int) error

	// Map returns zeroed, page-aligned memory for a region with the given rights.
	Map(n int, access transport.Access) ([]byte, error)

	// Publish is called when a region gets a key, before the key is valid here.
	Publish(r *Region, domain uint32, key transport.Key)

	// Registered is called after a region got its key, with no lock held, and before its user has the key.
	Registered(r *Region)

	// Revoke invalidates the key for peers, after it is invalid here. With owned, it also frees the region's
	// memory, which Map returned; with leave, that memory stays mapped.
	Revoke(r *Region, owned, leave bool) error
}

// Table is the table of a device's regions, by key. Its domains may be used by different goroutines. Find
// needs no lock, because a region changes only while its domain's user has it, and the list only grows.
type Table struct {
	memory  Memory
	query   func() transport.DeviceAttr
	attr    transport.DeviceAttr // as of NewTable: the limits never change
	domains atomic.Uint32
	all     atomic.Pointer[[]*Region]

	mu   sync.Mutex // guards changes of the table, free and keys
	free *Region
	keys *mathrand.ChaCha8
}

// NewTable makes the table of a device; query is its Query.
func NewTable(m Memory, query func() transport.DeviceAttr) *Table {
	var seed [32]byte
	rand.Read(seed[:])
	return &Table{memory: m, query: query, attr: query(), keys: mathrand.NewChaCha8(seed)}
}

// Seed makes later keys depend on a seed alone, for tests that compare bytes.
func (t *Table) Seed(seed [32]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.Seed(seed)
	for _, r := range t.list() {
		r.generation = 0
	}
}

// Len returns the number of entries, used or free.
func (t *Table) Len() int { return len(t.list()) }

// AllocPD makes a protection domain.
func (t *Table) AllocPD() (transport.PD, error) {
	if t.memory.Closed() {
		return nil, transport.ErrDeviceGone
	}
	return &PD{table: t, ID: t.domains.Add(1)}, nil
}

// list returns all entries.
func (t *Table) list() []*Region {
	if all := t.all.Load(); all != nil {
		return *all
	}
	return nil
}

// entry takes a free entry. The table's lock is held.
func (t *Table) entry() (*Region, error) {
	if r := t.free; r != nil {
		t.free, r.next = r.next, nil
		return r, nil
	}
	all := t.list()
	if len(all) == MaxRegions {
		return nil, fmt.Errorf("more than %d regions", MaxRegions)
	}
	if err := t.memory.NewEntry(len(all)); err != nil {
		return nil, fmt.Errorf("an entry of the table of keys: %w", err)
	}
	r := &Region{table: t, index: len(all), generation: uint8(t.keys.Uint64())}
	all = append(all, r)
	t.all.Store(&all)
	return r, nil
}

// put returns an entry to the free list.
func (t *Table) put(r *Region) {
	t.mu.Lock()
	r.next, t.free = t.free, r
	t.mu.Unlock()
}

// Close invalidates every key.
func (t *Table) Close() error {
	var errs []error
	for _, r := range t.list() {
		if r.pd.Load() != nil {
			errs = append(errs, r.Deregister())
		}
	}
	return errors.Join(errs...)
}

// PD is a protection domain.
type PD struct {
	ID  uint32
	QPs atomic.Int32 // queue pairs that use it

	table   *Table
	regions int
	closed  bool
}

// Limits returns what the device can do, without measurements such as CopyCosts, which may change.
func (t *Table) Limits() *transport.DeviceAttr { return &t.attr }

// DeviceAttr returns the present answer of the device's Query.
func (p *PD) DeviceAttr() transport.DeviceAttr { return p.table.query() }

// Of reports whether the domain belongs to a table.
func (p *PD) Of(t *Table) bool { return p.table == t }

// Close releases the domain.
func (p *PD) Close() error {
	if p.regions > 0 || p.QPs.Load() > 0 {
		return fmt.Errorf("%w: the protection domain has %d regions and %d queue pairs",
			transport.ErrInvalid, p.regions, p.QPs.Load())
	}
	p.closed = true
	return nil
}

const (
	// RemoteRights are the rights that let peers access memory.
	RemoteRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

	// Rights are all rights.
	Rights = transport.LocalWrite | RemoteRights | transport.Unchanging | transport.SoleWriter |
		transport.Mappable
)

// Region is a registered piece of memory.
type Region struct {
	Mem    []byte
	View   transport.View // in place of Mem, for bytes that are not contiguous; else nil
	Rights transport.Access

	viewed int // bytes of View

	table *Table
	// nil in a free entry; only pd and key may be read of a region of another domain
	pd         atomic.Pointer[PD]
	key        atomic.Uint64
	index      int
	generation uint8
	owned      bool // Mem is freed with the region
	next       *Region
}

// Register registers buf.
func (p *PD) Register(buf []byte, access transport.Access) (transport.MR, error) {
	r, err := p.register(buf, access, false)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// RegisterView registers n bytes of a view, which peers may at most Read.
func (p *PD) RegisterView(v transport.View, n int, access transport.Access) (transport.MR, error) {
	if !p.table.attr.Views {
		return nil, errors.ErrUnsupported
	}
	if err := p.alive(); err != nil {
		return nil, err
	}
	if v == nil || n <= 0 || access&^(transport.LocalWrite|transport.RemoteRead|transport.Unchanging) != 0 {
		return nil, fmt.Errorf("%w: a region of %d bytes of a view with rights %v", transport.ErrInvalid, n,
			access)
	}
	r, err := p.enter(nil, v, n, access, false)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Alloc registers fresh memory.
func (p *PD) Alloc(n int, access transport.Access) (transport.MR, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%w: a region of %d bytes", transport.ErrInvalid, n)
	}
	if err := p.alive(); err != nil {
		return nil, err
	}
	mem, err := p.table.memory.Map(n, access)
	if err != nil {
		return nil, fmt.Errorf("memory for a region of %d bytes: %w", n, err)
	}
	r, err := p.register(mem, access, true)
	if err != nil {
		return nil, errors.Join(err, p.table.memory.Revoke(&Region{Mem: mem}, true, false))
	}
	return r, nil
}

func (p *PD) alive() error {
	if p.closed || p.table.memory.Closed() {
		return fmt.Errorf("protection domain: %w", transport.ErrDeviceGone)
	}
	return nil
}

func (p *PD) register(buf []byte, access transport.Access, owned bool) (*Region, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	if len(buf) == 0 {
		return nil, fmt.Errorf("%w: a region of no bytes", transport.ErrInvalid)
	}
	if access&^Rights != 0 {
		return nil, fmt.Errorf("%w: unknown rights %v", transport.ErrInvalid, access)
	}
	if access&transport.RemoteAtomic != 0 && !Aligned(buf, 0) {
		return nil, fmt.Errorf("%w: memory for Atomics that does not begin at a multiple of %d",
			transport.ErrInvalid, WordSize)
	}
	if access&(transport.RemoteWrite|transport.RemoteAtomic) != 0 {
		access |= transport.LocalWrite
	}
	return p.enter(buf, nil, 0, access, owned)
}

// enter gives a region, of memory or of some bytes of a view, a table entry and a key.
func (p *PD) enter(buf []byte, v transport.View, viewed int, access transport.Access, owned bool) (*Region,
	error) {
	r, err := p.publish(buf, v, viewed, access, owned)
	if err == nil {
		p.table.memory.Registered(r)
	}
	return r, err
}

func (p *PD) publish(buf []byte, v transport.View, viewed int, access transport.Access, owned bool) (*Region,
	error) {
	t := p.table
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.entry()
	if err != nil {
		return nil, err
	}
	r.Mem, r.View, r.viewed, r.Rights, r.owned = buf, v, viewed, access, owned
	key := r.newKey(t.keys.Uint64())
	t.memory.Publish(r, p.ID, key)
	r.key.Store(uint64(key))
	r.pd.Store(p)
	p.regions++
	return r, nil
}

// newKey returns the next key of an entry, with random bits.
func (r *Region) newKey(random uint64) transport.Key {
	r.generation++
	return transport.Key(uint64(r.index) | uint64(r.generation)<<IndexBits |
		random<<(IndexBits+GenerationBits))
}

// Bytes returns the registered memory.
func (r *Region) Bytes() []byte { return r.Mem }

// Key returns what a peer needs to access the region; 0 if it is not registered.
func (r *Region) Key() transport.Key { return transport.Key(r.key.Load()) }

// Access returns the rights with which it was registered.
func (r *Region) Access() transport.Access { return r.Rights }

// Owned reports whether the region's memory was allocated by PD.Alloc, and is freed with it.
func (r *Region) Owned() bool { return r.owned }

// Index returns the index of the region's entry in the table.
func (r *Region) Index() int { return r.index }

// PD returns the domain of the region; nil if it is not registered. It may be called from any goroutine.
func (r *Region) PD() *PD { return r.pd.Load() }

// Deregister invalidates the key.
func (r *Region) Deregister() error { return r.deregister(false) }

// Detach invalidates the key, and leaves the memory mapped.
func (r *Region) Detach() error { return r.deregister(true) }

func (r *Region) deregister(leave bool) error {
	p := r.pd.Load()
	if p == nil {
		return fmt.Errorf("%w: the region is not registered", transport.ErrInvalid)
	}
	r.key.Store(0)
	err := r.table.memory.Revoke(r, r.owned, leave)
	p.regions--
	r.Mem, r.owned, r.View, r.viewed = nil, false, nil, 0
	r.pd.Store(nil)
	r.table.put(r)
	return err
}

// Find returns the region of a peer's request through a queue pair of the domain. It checks in the order of
// the specification: key, domain, right, bounds.
func (p *PD) Find(key transport.Key, need transport.Access, offset, length uint64) (*Region, error) {
	i, all := Index(key), p.table.list()
	if i >= len(all) || key == 0 || all[i].Key() != key {
		return nil, ErrKey(key)
	}
	r := all[i]
	if r.pd.Load() != p {
		return nil, fmt.Errorf("%w: the region of key %#x is of another protection domain",
			transport.ErrAccess, uint64(key))
	}
	if err := CheckAccess(key, r.Rights, need, offset, length, uint64(len(r.Mem)+r.viewed)); err != nil {
		return nil, err
	}
	return r, nil
}

// ErrKey returns the error for a key that is not valid.
func ErrKey(key transport.Key) error {
	return fmt.Errorf("%w: no region has the key %#x", transport.ErrAccess, uint64(key))
}

// CheckAccess returns an error for an access that the rights or the bounds of a region do not allow.
func CheckAccess(key transport.Key, has, need transport.Access, offset, length, size uint64) error {
	switch {
	case has&need != need:
		return fmt.Errorf("%w: the region of key %#x has rights %v, not %v", transport.ErrAccess,
			uint64(key), has, need)
	case offset > size || length > size-offset:
		return fmt.Errorf("%w: %d bytes at %d of the region of key %#x, which has %d", transport.ErrAccess,
			length, offset, uint64(key), size)
	}
	return nil
}

// Local checks an element of a gather or scatter list that is contiguous in memory.
func (p *PD) Local(s transport.SGE, need transport.Access) (*Region, error) {
	return p.local(s, need, false)
}

// local checks an element, which may be of a view.
func (p *PD) local(s transport.SGE, need transport.Access, views bool) (*Region, error) {
	r, ok := s.MR.(*Region)
	if !ok || r == nil {
		return nil, fmt.Errorf("%w: an element names no region of this device", transport.ErrInvalid)
	}
	size := len(r.Mem)
	if views {
		size += r.viewed
	}
	switch owner := r.pd.Load(); {
	case owner == nil:
		return nil, fmt.Errorf("%w: an element names no registered region of this device",
			transport.ErrInvalid)
	case owner != p:
		return nil, fmt.Errorf("%w: an element's region is of another protection domain",
			transport.ErrInvalid)
	case r.Rights&need != need:
		return nil, fmt.Errorf("%w: an element's region has rights %v, not %v", transport.ErrInvalid,
			r.Rights, need)
	case s.Offset < 0 || s.Length < 0 || s.Offset > size || s.Length > size-s.Offset:
		return nil, fmt.Errorf("%w: an element of %d bytes at %d of a region of %d", transport.ErrInvalid,
			s.Length, s.Offset, size)
	}
	return r, nil
}
