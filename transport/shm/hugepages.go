package shm

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// hugePages moves memory of the program that peers reach again and again onto huge pages
// (docs/internals/adr/0072): the system looks up and pins each page of another process's memory, which takes
// as long as to copy 4 KiB of it. It does so when such memory is registered, since a page that is being
// copied cannot be moved.
//
// The lock of the table of regions guards it.
type hugePages struct {
	off    bool
	blocks [hugeBlocks]hugeBlock // by number, modulo their count
	began  time.Time             // of the device
	spent  time.Duration         // on moves
}

// hugeBlock is aligned memory of the size of a huge page.
type hugeBlock struct {
	number uintptr // its address divided by its size
	bytes  int     // of it that peers were to reach, while it is where it was
	moved  bool    // or cannot be
}

const (
	hugePage   = 2 << 20
	hugeBlocks = 64
	hugeLeast  = 32 << 10 // of a region, from which its pages matter
	// Bytes of a block after which it is moved. To copy so many takes twice as long as the longest moves do:
	// 5 ms, where the system waits for all processors, which spin. Most moves take half a millisecond.
	hugeAfter = 128 << 20
	// Bytes of regions from this length on count so many times: a program that uses a few such buffers again
	// does so often.
	hugeLong   = 256 << 10
	hugeWeight = 16
	hugeAtOnce = 2 // blocks in one call
	// All moves take this long at most, and this part of the time that has passed.
	hugeTime  = 20 * time.Millisecond
	hugeShare = 50
)

// note counts memory of the program that peers are to reach, and moves what has been counted often.
func (h *hugePages) note(mem []byte) {
	if h.off || len(mem) < hugeLeast {
		return
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	end, moves, weight := at+uintptr(len(mem)), 0, 1
	if len(mem) >= hugeLong {
		weight = hugeWeight
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
		if b.bytes >= hugeAfter {
			moves++
			b.bytes, b.moved = 0, h.move(n)
		}
	}
}

// move moves a block; false if that may succeed later.
func (h *hugePages) move(number uintptr) bool {
	start := time.Now()
	if h.spent > hugeTime+start.Sub(h.began)/hugeShare {
		return false
	}
	err := sys.Collapse(number*hugePage, hugePage)
	h.spent += time.Since(start)
	return !errors.Is(err, syscall.EAGAIN)
}
