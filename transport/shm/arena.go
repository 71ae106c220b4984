package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// pageSize is the unit in which an arena is handed out. It is a multiple of the page of every machine that
// weft runs on.
const pageSize = 64 << 10

// arena is the memory of a device that its peers map, all of it at once: the table of keys, then pages for
// blocks, bitmaps and PD.Alloc. Its address range is much larger than what is used of it; the pages are there
// only where they are reserved.
type arena struct {
	fd  int
	mem []byte

	mu         sync.Mutex
	closed     bool
	free       []span // in ascending order, no two adjacent
	quarantine []quarantined
	detached   []span // detached: they outlive the device
	used       int64  // bytes that are handed out
	blocks     []int64
}

// span is a part of the arena.
type span struct{ off, n int64 }

// quarantined is memory that was given back while peers may still have been writing there. It is not used
// again before they have all ended that.
type quarantined struct {
	span
	writers []writer
}

// The arena begins with the table.
const (
	tableBytes = verbs.MaxRegions * entrySize
	minArena   = tableBytes + 16*pageSize
)

func newArena(size int64) (*arena, error) {
	size = size / pageSize * pageSize
	if size < minArena || size > maxArena {
		return nil, fmt.Errorf("%w: an arena of %d bytes; %d to %d are possible", transport.ErrInvalid,
			size, minArena,
			int64(maxArena))
	}
	fd, err := sys.SharedMemory(size)
	if err != nil {
		return nil, err
	}
	mem, err := sys.MapShared(fd, int(size))
	if err != nil {
		return nil, errors.Join(err, sys.CloseFD(fd))
	}
	return &arena{fd: fd, mem: mem, free: []span{{tableBytes, size - tableBytes}}}, nil
}

// errNoMemory says that the arena or the machine has no room.
var errNoMemory = errors.New("out of shared memory")

// alloc hands out memory, zeroed and reserved, in whole units. What is small is a ring, most likely, and used
// at once.
func (a *arena) alloc(n int) (span, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.take(n)
	if err != nil {
		return span{}, err
	}
	give := sys.Reserve
	if n <= maxFilled {
		give = sys.Fill
	}
	if err := a.reserve(give, s.off, int64(n)); err != nil {
		_ = a.recycle(s) // it has no pages, or gives them back later
		return span{}, err
	}
	return s, nil
}

// maxFilled is how large memory is at most that gets its pages at once: a ring of any phase that is common.
const maxFilled = 1 << 20

// reserve has the system give a part of the arena its pages.
func (a *arena) reserve(give func(fd int, off, n int64) error, off, n int64) error {
	if err := give(a.fd, off, (n+minPage-1)/minPage*minPage); err != nil {
		return fmt.Errorf("%w: the system gives no %d bytes (%w); %d are in use", errNoMemory, n, err, a.used)
	}
	return nil
}

// minPage is the page of most machines.
const minPage = 4 << 10

// take hands out addresses. The lock is held.
func (a *arena) take(n int) (span, error) {
	if a.closed {
		return span{}, transport.ErrDeviceGone
	}
	a.release()
	size := (int64(n) + pageSize - 1) / pageSize * pageSize
	if n <= 0 || size < int64(n) {
		return span{}, fmt.Errorf("%w: %d bytes of shared memory", transport.ErrInvalid, n)
	}
	for i := range a.free {
		f := &a.free[i]
		if f.n < size {
			continue
		}
		s := span{f.off, size}
		f.off, f.n = f.off+size, f.n-size
		if f.n == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		a.used += size
		return s, nil
	}
	return span{}, fmt.Errorf("%w: no room for %d bytes; %d of %d are in use, or given back and not yet "+
		"left by peers", errNoMemory, n, a.used,
		int64(len(a.mem))-tableBytes)
}

// put takes a span back. writers are peers that may be writing there.
func (a *arena) put(s span, writers []writer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if len(writers) > 0 {
		_ = sys.Punch(a.fd, s.off, s.n) // what is written yet is gone with the next one
		a.quarantine = append(a.quarantine, quarantined{s, writers})
		return nil
	}
	return a.recycle(s)
}

// release takes out of quarantine what nobody writes any more.
func (a *arena) release() {
	a.quarantine = slices.DeleteFunc(a.quarantine, func(q quarantined) bool {
		for _, w := range q.writers {
			if w.writing() {
				return false
			}
		}
		_ = a.recycle(q.span) // the pages stay then, and are zeroed with the next use
		return true
	})
}

// recycle makes a span free. The lock is held.
func (a *arena) recycle(s span) error {
	err := sys.Punch(a.fd, s.off, s.n)
	if err != nil {
		clear(a.bytes(s))
	}
	a.used -= s.n
	i, _ := slices.BinarySearchFunc(a.free, s, func(x, y span) int {
		return int(min(max(x.off-y.off, -1),
			1))
	})
	a.free = slices.Insert(a.free, i, s)
	if i+1 < len(a.free) && s.off+s.n == a.free[i+1].off {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].off+a.free[i-1].n == a.free[i].off {
		a.free[i-1].n += a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	}
	return err
}

// keep leaves a span mapped when the device is closed.
func (a *arena) keep(s span) {
	a.mu.Lock()
	a.detached = append(a.detached, s)
	a.mu.Unlock()
}

func (a *arena) bytes(s span) []byte { return a.mem[s.off : s.off+s.n : s.off+s.n] }

// offset tells where in the arena b lies, if all of it does.
func (a *arena) offset(b []byte) (int64, bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem)))
	return int64(at), at < uintptr(len(a.mem)) && uintptr(len(b)) <= uintptr(len(a.mem))-at
}

// block hands out zeroed memory for one connection, or for one completion queue.
func (a *arena) block() (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.blocks) == 0 {
		s, err := a.take(pageSize)
		if err != nil {
			return 0, err
		}
		for off := s.off + s.n - blockSize; off >= s.off; off -= blockSize {
			a.blocks = append(a.blocks, off)
		}
	}
	off := a.blocks[len(a.blocks)-1]
	if err := a.reserve(sys.Reserve, off, blockSize); err != nil {
		return 0, err
	}
	a.blocks = a.blocks[:len(a.blocks)-1]
	clear(a.mem[off : off+blockSize])
	return off, nil
}

// putBlock takes a block back that no peer writes any more.
func (a *arena) putBlock(off int64) {
	a.mu.Lock()
	a.blocks = append(a.blocks, off)
	a.mu.Unlock()
}

// close gives everything back to the system but what is kept.
func (a *arena) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	slices.SortFunc(a.detached, func(x, y span) int { return int(min(max(x.off-y.off, -1), 1)) })
	var errs []error
	at := int64(0)
	for _, k := range a.detached {
		errs = append(errs, sys.UnmapShared(a.mem[at:k.off]))
		at = k.off + k.n
	}
	errs = append(errs, sys.UnmapShared(a.mem[at:]), sys.CloseFD(a.fd))
	return errors.Join(errs...)
}
