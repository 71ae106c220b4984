package shm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// doorbell is how peers tell a completion queue which of its queue pairs have something. It lies in the arena
// of the queue's device; each queue pair has a bit of it, its slot.
type doorbell struct {
	summary uint64 // which of the words have a bit
	_       [7]uint64

	sleeping uint64 // 1: whoever rings wakes the queue's poller, and resets it
	_        [7]uint64

	words [64]uint64
}

// maxSlots is how many queue pairs one completion queue can have.
const maxSlots = 64 * 64

var _ [blockSize - unsafe.Sizeof(doorbell{})]struct{}

// ringDoorbell tells a peer's queue of a queue pair; by is a poller of ours. What was stored before is seen
// by who finds the bit; since the bit may stand there already, and is not set again then, a barrier comes
// first.
func (f *peerQueue) ringDoorbell(by *sys.Poller) {
	word, bit := &f.words[f.slot/64], uint64(1)<<(f.slot%64)
	in := uint64(1) << (f.slot / 64)
	sys.FullBarrier()
	if atomic.LoadUint64(word)&bit == 0 {
		atomic.OrUint64(word, bit)
	}
	if atomic.LoadUint64(&f.summary)&in == 0 {
		atomic.OrUint64(&f.summary, in)
	}
	if atomic.LoadUint64(&f.sleeping) != 0 && atomic.SwapUint64(&f.sleeping, 0) != 0 {
		by.Signal(f.wake)
	}
}

// pending reports whether anybody has rung.
func (b *doorbell) pending() bool { return atomic.LoadUint64(&b.summary) != 0 }

// each takes the bits and calls f for each slot.
func (b *doorbell) each(f func(slot int)) {
	for words := atomic.SwapUint64(&b.summary, 0); words != 0; words &= words - 1 {
		w := bits.TrailingZeros64(words)
		for set := atomic.SwapUint64(&b.words[w], 0); set != 0; set &= set - 1 {
			f(w*64 + bits.TrailingZeros64(set))
		}
	}
}
