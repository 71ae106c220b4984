package shm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// pageSize divides the size of an arena. It is a multiple of the page size of every machine that weft runs
// on.
const pageSize = 64 << 10

// unit is the unit of allocation in an arena: a page.
var unit = int64(max(minPage, os.Getpagesize()))

// units rounds a number of bytes up to whole units.
func units(n int64) int64 { return (n + unit - 1) / unit * unit }

// arena is the memory of a device that its peers map, as a whole: its tables (see below), and pages for
// control blocks (controlblock.go), doorbells (doorbell.go) and PD.Alloc. Its address range is much larger
// than what is used of it; only reserved pages exist.
type arena struct {
	fd  int
	mem []byte

	mu         sync.Mutex
	closed     bool
	free       []span // in ascending order, no two adjacent
	filled     span   // has its pages, zeroed, and is mapped: for small memory
	quarantine []quarantined
	detached   []span // by MR.Detach: they outlive the device
	used       int64  // allocated bytes
	blocks     []int64
	doorbells  []int64 // not used yet, of those at the beginning
}

// span is a part of the arena.
type span struct{ off, n int64 }

// quarantined is memory that was freed while peers may still have been writing there. It is not reused before
// all of them have stopped.
type quarantined struct {
	span
	writers []writer
}

// The arena begins with what a peer needs first, and the system maps at once: the table of requests for
// connections, the first doorbells and the first keys. Then comes the front, small memory of some hundred
// connections. Up to its end, one page of the system's page tables describes the memory. The other keys and
// the rest of the arena follow.
const (
	connectTableAt = 0
	doorbellsAt    = connectTableAt + connectTableBytes
	firstKeysAt    = doorbellsAt + firstDoorbells*blockSize
	frontAt        = firstKeysAt + firstKeys*entrySize
	keysAt         = 2 << 20
	blocksAt       = keysAt + (verbs.MaxRegions-firstKeys)*entrySize

	firstDoorbells = 4
	firstKeys      = 512
	minArena       = (blocksAt+pageSize-1)/pageSize*pageSize + 16*pageSize
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
	if err := sys.Reserve(fd, connectTableAt, connectTableBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errNoMemory, err), sys.UnmapShared(mem), sys.CloseFD(fd))
	}
	a := &arena{fd: fd, mem: mem, free: []span{{frontAt, keysAt - frontAt}, {blocksAt, size - blocksAt}}}
	for i := range int64(firstDoorbells) {
		a.doorbells = append(a.doorbells, doorbellsAt+(firstDoorbells-1-i)*blockSize)
	}
	return a, nil
}

// errNoMemory says that the arena or the machine is full.
var errNoMemory = errors.New("out of shared memory")

// alloc allocates zeroed and reserved memory, in whole units. Small memory is most likely a ring, which is
// used at once, so its pages are filled. Here and below, ring, mirror and phase are those of package channel.
func (a *arena) alloc(n int) (span, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n <= maxSmall {
		return a.small(n)
	}
	s, err := a.take(n, blocksAt)
	if err != nil {
		return span{}, err
	}
	give := sys.Reserve
	if n <= maxFilled {
		give = sys.Fill
	}
	if err := a.reserve(give, s.off, int64(n)); err != nil {
		_ = a.recycle(s) // it has no pages, or frees them later
		return span{}, err
	}
	return s, nil
}

// allocUnused allocates memory whose pages appear on use.
func (a *arena) allocUnused(n int) (span, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.take(n, blocksAt)
}

// maxFilled is the largest allocation that gets its pages at once: a ring of any common phase.
const maxFilled = 1 << 20

// maxSmall is the largest small memory: the first ring of a connection, and blocks. Its pages are made, and
// mapped, up to the next multiple of mappedAtOnce, for five connections. What a peer needs of one connection
// is adjacent, so that it is mapped at once there too.
const maxSmall = 16 << 10

// small allocates small memory. The lock is held.
func (a *arena) small(n int) (span, error) {
	size := units(int64(n))
	if n <= 0 || a.closed {
		return a.take(n, 0) // which gives the error
	}
	a.release()
	fits := slices.IndexFunc(a.free, func(f span) bool { return f.n >= size })
	if fits >= 0 && a.free[fits].n < mappedAtOnce { // small memory has left a hole
		return a.populated(n)
	}
	if a.filled.n < size {
		more := size
		if fits >= 0 {
			more = max(more, mappedAtOnce-a.free[fits].off%mappedAtOnce)
		}
		s, err := a.populated(int(more))
		if err != nil {
			return span{}, err
		}
		a.used -= s.n
		for ; a.filled.n > 0; a.filled = (span{a.filled.off + unit, a.filled.n - unit}) {
			a.blocks = append(a.blocks, a.filled.off)
			a.used += unit
		}
		a.filled = s
	}
	s := span{a.filled.off, size}
	a.filled.off, a.filled.n = a.filled.off+size, a.filled.n-size
	a.used += size
	return s, nil
}

// populated takes memory with its pages, and has them mapped. The lock is held.
func (a *arena) populated(n int) (span, error) {
	s, err := a.take(n, 0)
	if err != nil {
		return span{}, err
	}
	if err := a.reserve(sys.Fill, s.off, s.n); err != nil {
		_ = a.recycle(s) // it has no pages, or frees them later
		return span{}, err
	}
	touch(a.bytes(s))
	return s, nil
}

// reserve makes the system reserve the pages of a part of the arena.
func (a *arena) reserve(give func(fd int, off, n int64) error, off, n int64) error {
	if err := give(a.fd, off, (n+minPage-1)/minPage*minPage); err != nil {
		return fmt.Errorf("%w: the system refuses %d bytes (%w); %d are in use", errNoMemory, n, err, a.used)
	}
	return nil
}

// minPage is the page size of most machines.
const minPage = 4 << 10

// take allocates addresses from an offset on. The lock is held.
func (a *arena) take(n int, from int64) (span, error) {
	if a.closed {
		return span{}, transport.ErrDeviceGone
	}
	a.release()
	size := units(int64(n))
	if n <= 0 || size < int64(n) {
		return span{}, fmt.Errorf("%w: %d bytes of shared memory", transport.ErrInvalid, n)
	}
	for i := range a.free {
		f := &a.free[i]
		if f.n < size || f.off < from {
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
	return span{}, fmt.Errorf("%w: no room for %d bytes; %d of %d are in use, or freed and not yet "+
		"left by peers", errNoMemory, n, a.used,
		int64(len(a.mem))-blocksAt)
}

// put frees a span. writers are the peers that may still be writing there.
func (a *arena) put(s span, writers []writer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	if len(writers) > 0 {
		_ = sys.Punch(a.fd, s.off, s.n) // later writes are dropped by the next Punch
		a.quarantine = append(a.quarantine, quarantined{s, writers})
		return nil
	}
	return a.recycle(s)
}

// release frees quarantined spans that nobody writes any more.
func (a *arena) release() {
	a.quarantine = slices.DeleteFunc(a.quarantine, func(q quarantined) bool {
		for _, w := range q.writers {
			if w.writing() {
				return false
			}
		}
		_ = a.recycle(q.span) // on failure the pages stay, and are zeroed
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

// keep leaves a span mapped after the device is closed.
func (a *arena) keep(s span) {
	a.mu.Lock()
	a.detached = append(a.detached, s)
	a.mu.Unlock()
}

func (a *arena) bytes(s span) []byte { return a.mem[s.off : s.off+s.n : s.off+s.n] }

// offset returns the offset of b in the arena, if all of it lies there.
func (a *arena) offset(b []byte) (int64, bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem)))
	return int64(at), at < uintptr(len(a.mem)) && uintptr(len(b)) <= uintptr(len(a.mem))-at
}

// block allocates zeroed memory for one connection.
func (a *arena) block() (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return 0, transport.ErrDeviceGone
	case len(a.blocks) == 0:
		s, err := a.small(blockSize)
		return s.off, err
	}
	off := a.blocks[len(a.blocks)-1]
	a.blocks = a.blocks[:len(a.blocks)-1]
	clear(a.mem[off : off+blockSize])
	return off, nil
}

// doorbell allocates zeroed memory for a completion queue, at the beginning while there is some.
func (a *arena) doorbell() (int64, error) {
	a.mu.Lock()
	n := len(a.doorbells)
	if n == 0 {
		a.mu.Unlock()
		return a.block()
	}
	defer a.mu.Unlock()
	if a.closed {
		return 0, transport.ErrDeviceGone
	}
	off := a.doorbells[n-1]
	if err := a.reserve(sys.Reserve, off, blockSize); err != nil {
		return 0, err
	}
	a.doorbells = a.doorbells[:n-1]
	return off, nil
}

// putDoorbell frees a doorbell that no peer has been told of.
func (a *arena) putDoorbell(off int64) {
	if off >= firstKeysAt {
		a.putBlock(off)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		clear(a.mem[off : off+blockSize])
		a.doorbells = append(a.doorbells, off)
	}
}

// putBlock frees a block that no peer writes any more.
func (a *arena) putBlock(off int64) {
	a.mu.Lock()
	a.blocks = append(a.blocks, off)
	a.mu.Unlock()
}

// close frees everything except detached spans.
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
