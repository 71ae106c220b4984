package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// entry is what peers see of a region or a bound window: one line of the table that an arena begins with. The
// owner stores the key last and clears it first; a key never comes back. So who finds the same key before and
// after all else has read what belongs to it.
type entry struct {
	key    uint64 // 0: nothing
	kind   uint64 // rights, entryShared and entryCounted
	where  uint64 // offset in the arena, or address in the owner's process
	length uint64
	owner  uint64 // domain (32 bits), and the queue pair that a window is bound to (32 bits)
	puts   uint64 // peers that are, or were when they ended, placing bytes and counted
	_      [2]uint64
}

const (
	entrySize    = int64(unsafe.Sizeof(entry{}))
	entryRights  = 1<<8 - 1
	entryShared  = 1 << 8 // the memory lies in the arena
	entryCounted = 1 << 9 // who writes there is counted, as with a Put: the memory outlives the key
)

// target is a region of the peer as its table tells of it.
type target struct {
	shared  bool
	counted bool
	rights  transport.Access
	where   uint64
	length  uint64
	domain  uint32
	bound   transport.QPN // of a window; 0 for a region
	entry   *entry
}

// find looks a key of the peer up and checks an access, in the order of the specification: key, domain,
// right, bounds.
func (f *peerMapping) find(key transport.Key, need transport.Access, offset, length uint64) (target, error) {
	e := entryAt(f.mem, verbs.Index(key))
	if key == 0 || atomic.LoadUint64(&e.key) != uint64(key) {
		return target{}, verbs.ErrKey(key)
	}
	kind, owner := atomic.LoadUint64(&e.kind), atomic.LoadUint64(&e.owner)
	t := target{shared: kind&entryShared != 0, counted: kind&entryCounted != 0,
		rights: transport.Access(kind & entryRights),
		where:  atomic.LoadUint64(&e.where),
		length: atomic.LoadUint64(&e.length), domain: uint32(owner), bound: transport.QPN(owner >> 32),
		entry: e}
	if !t.stands(key) {
		return target{}, verbs.ErrKey(key)
	}
	err := f.mayUse(key, &t, need, offset, length)
	if err == nil && t.shared && (t.where > uint64(len(f.mem)) ||
		t.length > uint64(len(f.mem))-t.where) {
		err = verbs.ErrKey(key) // a table that makes no sense
	}
	return t, err
}

// enter counts a peer that is about to place bytes, if that is done there, or always; false if the key is out
// of use. Memory of the program is the program's once its key is gone: its owner waits until nobody is
// counted, so a peer is counted before it looks at the key for the last time.
func (t *target) enter(key transport.Key, always bool) bool {
	t.counted = t.counted || always
	if !t.counted {
		return true
	}
	atomic.AddUint64(&t.entry.puts, 1)
	if atomic.LoadUint64(&t.entry.key) == uint64(key) {
		return true
	}
	t.leave()
	return false
}

// leave ends what enter has begun.
func (t *target) leave() {
	if t.counted {
		atomic.AddUint64(&t.entry.puts, ^uint64(0))
	}
}

// stands reports whether the key is still in use, after all that was read before.
func (t *target) stands(key transport.Key) bool {
	sys.LoadBarrier()
	return atomic.LoadUint64(&t.entry.key) == uint64(key)
}
