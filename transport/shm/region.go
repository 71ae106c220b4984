package shm

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// memory is the device's part of its table of regions: peers find regions in the table at the beginning of
// the arena, and map memory that lies in the arena.
type memory struct{ *Device }

var _ verbs.Memory = memory{}

func (m memory) Closed() bool { return m.Device.Closed() }

// NewEntry reserves the page of a table entry.
func (m memory) NewEntry(index int) error {
	at := entryOffset(index)
	if at%minPage != 0 {
		return nil
	}
	m.arena.mu.Lock()
	defer m.arena.mu.Unlock()
	return m.arena.reserve(sys.Reserve, at, minPage)
}

// Map returns memory in the arena, or, if no peer will ever access it and it is not small, ordinary memory.
// The pages of what no peer accesses appear on use: most mirrors of a connection's first ring are not used.
func (m memory) Map(n int, access transport.Access) ([]byte, error) {
	reached := access&(verbs.RemoteRights|transport.Mappable) != 0
	if !reached && n > maxSmall {
		return sys.Map(n)
	}
	alloc := m.arena.alloc
	if !reached {
		alloc = m.arena.allocUnused
	}
	s, err := alloc(n)
	if err != nil {
		return nil, err
	}
	return m.arena.bytes(s)[:n:n], nil
}

// Registered counts a region of the program's memory, and may move it to huge pages.
func (m memory) Registered(r *verbs.Region) {
	if r.Rights&verbs.RemoteRights == 0 {
		return
	}
	if _, ok := m.arena.offset(r.Mem); !ok {
		m.huge.note(r.Mem)
	}
}

// Publish lets peers find a region, if they have any right: it stores the key last.
func (m memory) Publish(r *verbs.Region, domain uint32, key transport.Key) {
	if r.Rights&verbs.RemoteRights == 0 {
		return
	}
	e := entryAt(m.arena.mem, verbs.Index(key))
	where, kind := addressOf(r.Mem), uint64(r.Rights&^transport.Mappable)
	if off, ok := m.arena.offset(r.Mem); ok {
		where = uint64(off)
		kind |= entryShared
		if !r.Owned() {
			kind |= entryCounted
		}
	}
	sys.StoreRelease(&e.kind, kind)
	sys.StoreRelease(&e.where, where)
	sys.StoreRelease(&e.length, uint64(len(r.Mem)))
	sys.StoreRelease(&e.domain, uint64(domain))
	sys.StoreRelease(&e.key, uint64(key))
}

// Revoke invalidates the key for peers. Memory that is freed with the key is quarantined if a peer may still
// be writing there after a short wait. Other memory stays the program's: Revoke waits until nobody writes
// there.
func (m memory) Revoke(r *verbs.Region, owned, leave bool) error {
	off, shared := m.arena.offset(r.Mem)
	var writing []writer
	if r.Rights&verbs.RemoteRights != 0 {
		sys.StoreRelease(&entryAt(m.arena.mem, r.Index()).key, 0)
		sys.StoreBarrier() // a peer that reads later contents finds no key
		// who reads looks at the key again
		if r.Rights&(transport.RemoteWrite|transport.RemoteAtomic) != 0 {
			switch {
			case !owned:
				m.awaitPuts(entryAt(m.arena.mem, r.Index()))
			case shared:
				writing = m.activeWriters()
			}
		}
	}
	part := span{off, units(int64(len(r.Mem)))}
	switch {
	case !owned:
		return nil
	case leave && shared:
		m.arena.keep(part)
		return nil
	case leave:
		return nil
	case shared:
		return m.arena.put(part, writing)
	}
	return sys.Unmap(r.Mem)
}

// mayUse checks an access to a region of the peer, except for the key itself.
func (f *peerMapping) mayUse(key transport.Key, e *target, need transport.Access,
	offset, length uint64) error {
	if e.domain != f.domain {
		return fmt.Errorf("%w: the region of key %#x is of another protection domain", transport.ErrAccess,
			uint64(key))
	}
	return verbs.CheckAccess(key, e.rights, need, offset, length, e.length)
}
