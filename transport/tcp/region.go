package tcp

import (
	"errors"
	"fmt"

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
}

// region is a registered piece of memory.
type region struct {
	dev        *Device
	pd         *pd // nil in a free entry
	mem        []byte
	key        transport.Key
	index      int
	generation uint8
	access     transport.Access
	mapped     bool // the memory is ours to unmap
	windows    int  // bound to it
	next       *region
	window     *window // whose entry this is: what is bound, and not a region of its own
}

// regionTable finds regions by key.
type regionTable struct {
	all  []*region
	free *region
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
	if p.closed || p.dev.closed {
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
	r, err := p.dev.entry()
	if err != nil {
		return nil, err
	}
	if access&(transport.RemoteWrite|transport.RemoteAtomic) != 0 {
		access |= transport.LocalWrite
	}
	r.key = r.newKey(p.dev.keys.Uint64())
	r.pd, r.mem, r.access, r.mapped, r.next = p, buf, access, mapped, nil
	p.regions++
	return r, nil
}

const rights = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic | transport.BindWindow

// entry takes a free entry of the table.
func (d *Device) entry() (*region, error) {
	if r := d.regions.free; r != nil {
		d.regions.free = r.next
		return r, nil
	}
	return d.newEntry()
}

func (d *Device) newEntry() (*region, error) {
	t := &d.regions
	if len(t.all) > indexMask {
		return nil, fmt.Errorf("more than %d regions and windows", indexMask+1)
	}
	r := &region{dev: d, index: len(t.all), generation: uint8(d.keys.Uint64())}
	t.all = append(t.all, r)
	return r, nil
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
func (r *region) Key() transport.Key       { return r.key }
func (r *region) Access() transport.Access { return r.access }

// Deregister takes the key out of use. A frame that is being placed fails when its next piece comes.
func (r *region) Deregister() error {
	if r.pd == nil {
		return fmt.Errorf("%w: the region is not registered", transport.ErrInvalid)
	}
	if r.windows > 0 {
		return fmt.Errorf("%w: %d windows are bound to the region; invalidate or deallocate them first", transport.ErrInvalid, r.windows)
	}
	mem, mapped := r.mem, r.mapped
	r.pd.regions--
	r.pd, r.mem, r.key, r.mapped = nil, nil, 0, false
	t := &r.dev.regions
	r.next, t.free = t.free, r
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
	i := int(uint64(key) & indexMask)
	if i >= len(t.all) || t.all[i].pd == nil || t.all[i].key != key {
		return nil, fmt.Errorf("%w: no region has the key %#x", transport.ErrAccess, uint64(key))
	}
	r := t.all[i]
	if r.pd != q.pd {
		if r.window == nil {
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
	switch {
	case !ok || r == nil || r.pd == nil:
		return nil, fmt.Errorf("%w: an element names no registered region of this device", transport.ErrInvalid)
	case r.pd != p:
		return nil, fmt.Errorf("%w: an element's region is of another protection domain", transport.ErrInvalid)
	case r.access&need != need:
		return nil, fmt.Errorf("%w: an element's region has rights %v, not %v", transport.ErrInvalid, r.access, need)
	case s.Offset < 0 || s.Length < 0 || s.Offset > len(r.mem) || s.Length > len(r.mem)-s.Offset:
		return nil, fmt.Errorf("%w: an element of %d bytes at %d of a region of %d", transport.ErrInvalid, s.Length, s.Offset,
			len(r.mem))
	}
	return r, nil
}

func (t *regionTable) release() error {
	var errs []error
	for _, r := range t.all {
		if r.pd != nil {
			errs = append(errs, r.Deregister())
		}
	}
	return errors.Join(errs...)
}
