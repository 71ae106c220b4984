package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// entry describes a region to peers: one line of the table at the beginning of an arena. The owner stores
// the key last and clears it first, and a key is never used again. So a peer that finds the same key before
// and after it reads the other fields has read fields that belong to the key.
type entry struct {
	key    uint64 // 0: none
	kind   uint64 // rights, entryShared and entryCounted
	where  uint64 // offset in the arena, or address in the owner's process
	length uint64
	domain uint64
	puts   uint64 // counted writers, including those that ended while they were writing
	_      [2]uint64
}

const (
	entrySize    = int64(unsafe.Sizeof(entry{}))
	entryRights  = 1<<8 - 1
	entryShared  = 1 << 8 // the memory lies in the arena
	entryCounted = 1 << 9 // all writers are counted, as with a Put: the memory outlives the key
)

// target is a region of the peer, as read from its table.
type target struct {
	shared  bool
	counted bool
	rights  transport.Access
	where   uint64
	length  uint64
	domain  uint32
	entry   *entry
}

// find looks up a key of the peer and checks an access, in the order of the specification: key, domain,
// right, bounds.
func (f *peerMapping) find(key transport.Key, need transport.Access, offset, length uint64) (target, error) {
	e := entryAt(f.mem, verbs.Index(key))
	if key == 0 || atomic.LoadUint64(&e.key) != uint64(key) {
		return target{}, verbs.ErrKey(key)
	}
	kind := atomic.LoadUint64(&e.kind)
	t := target{shared: kind&entryShared != 0, counted: kind&entryCounted != 0,
		rights: transport.Access(kind & entryRights),
		where:  atomic.LoadUint64(&e.where),
		length: atomic.LoadUint64(&e.length), domain: uint32(atomic.LoadUint64(&e.domain)),
		entry: e}
	if !t.stands(key) {
		return target{}, verbs.ErrKey(key)
	}
	err := f.mayUse(key, &t, need, offset, length)
	if err == nil && t.shared && (t.where > uint64(len(f.mem)) || t.length > uint64(len(f.mem))-t.where) {
		err = verbs.ErrKey(key) // an invalid table
	}
	return t, err
}

// enter counts this peer as a writer, if the region counts writers or always is set; false if the key is no
// longer valid. The program's memory belongs to the program again once its key is gone: the owner waits until
// no writer is counted, so a writer is counted before it checks the key for the last time.
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

// leave ends what enter began.
func (t *target) leave() {
	if t.counted {
		atomic.AddUint64(&t.entry.puts, ^uint64(0))
	}
}

// stands reports whether the key is still valid after all earlier reads.
func (t *target) stands(key transport.Key) bool {
	sys.LoadBarrier()
	return atomic.LoadUint64(&t.entry.key) == uint64(key)
}
