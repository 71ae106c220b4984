package shm

import (
	"errors"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// hugePages moves memory of the program that peers access often to huge pages (docs/internals/adr/0070): the
// system looks up and pins each page of another process's memory, which takes as long as copying 4 KiB of it.
// It moves memory when it is registered, because a page that is being copied cannot be moved. A move can take
// 5 ms, and no lock is held meanwhile.
type hugePages struct {
	off bool

	mu     sync.Mutex            // guards what follows
	blocks [hugeBlocks]hugeBlock // by number, modulo their count
	began  time.Time             // of the device
	spent  time.Duration         // on moves
}

// hugeBlock is aligned memory of the size of a huge page.
type hugeBlock struct {
	number uintptr // its address divided by its size
	bytes  int     // of registered memory, counted
	moved  bool    // or is being moved, or cannot be moved
}

const (
	hugePage   = 2 << 20
	hugeBlocks = 64
	hugeLeast  = 32 << 10 // smallest region that counts
	// Bytes of a block after which it is moved. Copying that much takes twice as long as the longest moves: 5
	// ms, when the system waits for all CPUs, which spin. Most moves take half a millisecond.
	hugeAfter = 128 << 20
	// A region of at least hugeLong bytes counts hugeWeight times, and a short one as if hugeUses of them
	// were 2 MiB. So a 2 MiB block is moved once more than 2 MiB of it have been registered in total, or
	// a region of it more than hugeUses times: the program is using it again, and will do so often.
	hugeLong   = 64 << 10
	hugeWeight = hugeAfter / hugePage
	hugeUses   = 8
	hugeAtOnce = 2 // blocks in one call
	// Limits of all moves together: a total time, and a share of the elapsed time.
	hugeTime  = 20 * time.Millisecond
	hugeShare = 50
)

// note counts a registered region, and moves blocks that have been counted often.
func (h *hugePages) note(mem []byte) {
	if h.off || len(mem) < hugeLeast {
		return
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	end, weight := at+uintptr(len(mem)), 1
	var due [hugeAtOnce]uintptr
	moves := 0
	h.mu.Lock()
	if len(mem) >= hugeLong {
		weight = max(hugeWeight, hugeAfter/(hugeUses*len(mem)))
	}
	for n := at / hugePage; n <= (end-1)/hugePage && moves < hugeAtOnce; n++ {
		b := &h.blocks[n%hugeBlocks]
		if b.number != n {
			*b = hugeBlock{number: n}
		}
		if b.moved {
			continue
		}
		b.bytes += weight * int(min(end, (n+1)*hugePage)-max(at, n*hugePage))
		if b.bytes > hugeAfter {
			due[moves] = n
			moves++
			b.bytes, b.moved = 0, true
		}
	}
	h.mu.Unlock()
	for _, n := range due[:moves] {
		if !h.move(n) {
			h.mu.Lock()
			if b := &h.blocks[n%hugeBlocks]; b.number == n {
				b.moved = false
			}
			h.mu.Unlock()
		}
	}
}

// move moves a block. It returns false if a later attempt may succeed.
func (h *hugePages) move(number uintptr) bool {
	start := time.Now()
	h.mu.Lock()
	late := h.spent > hugeTime+start.Sub(h.began)/hugeShare
	h.mu.Unlock()
	if late {
		return false
	}
	err := sys.Collapse(number*hugePage, hugePage)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spent += time.Since(start)
	return !errors.Is(err, syscall.EAGAIN)
}
