package shm

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// controlBlock is the memory that the two ends of one direction share. It lies in the receiver's arena. Each
// cache line is written by one side only.
type controlBlock struct {
	tail uint64 // by the sender: bytes of frames written since the beginning, and tailEnded
	_    [7]uint64

	// by the sender: odd while it looks up a key and places bytes with it; incremented before and after
	placementSeq uint64
	writeSeq     uint64 // by the sender: incremented with every Write or Atomic that it notifies
	wants        uint64 // by the sender: 1 while it waits for room, or for its frames to be consumed
	heartbeatSeq uint64 // by the sender: incremented by its Ticks
	_            [4]uint64

	notifyEnable uint64 // by the receiver: what the sender must do when it has placed something
	_            [7]uint64

	consumed uint64 // by the receiver: bytes of frames consumed
	_        [7]uint64

	ring [ringSize]byte
}

const (
	blockSize = 4 << 10
	ringSize  = blockSize - 4*64
)

var _ [blockSize - unsafe.Sizeof(controlBlock{})]struct{}
var _ [unsafe.Sizeof(controlBlock{}) - blockSize]struct{}

// tailEnded is the bit of tail that says that the sender no longer uses the receiver's memory.
const tailEnded = 1 << 63

// Bits of notifyEnable.
const (
	notifyTell   = 1 << iota // ring the doorbells of the completion queues
	notifyClosed             // place nothing more
)

// receiveBlock is the receiver's view of a block. The peer may write there until its end of the connection is
// closed, whatever the state of this end.
type receiveBlock struct {
	off    int64
	block  *controlBlock
	gone   atomic.Bool // the peer's process has ended
	closed atomic.Bool // both directions were closed in order: the peer places nothing more
}

// ended reports whether the peer no longer writes.
func (in *receiveBlock) ended() bool {
	return in.gone.Load() || atomic.LoadUint64(&in.block.tail)&tailEnded != 0
}

// mayPlace reports whether the peer may place bytes.
func (in *receiveBlock) mayPlace() bool { return !in.closed.Load() && !in.ended() }

func newReceiveBlock(a *arena) (*receiveBlock, error) {
	off, err := a.block()
	if err != nil {
		return nil, err
	}
	in := &receiveBlock{off: off, block: controlBlockAt(a.mem, uint64(off))}
	in.block.notifyEnable = notifyTell // until the queue polls: clearing it then needs no barrier
	return in, nil
}

// writer is a peer that was found placing bytes.
type writer struct {
	in   *receiveBlock
	mark uint64
}

// writing reports whether the peer is still in the same placement.
func (w writer) writing() bool {
	return !w.in.ended() && atomic.LoadUint64(&w.in.block.placementSeq) == w.mark
}

// writerWait is how long to wait for a peer that is placing bytes before probing its process, which takes
// many system calls. A copy takes less, even if the peer loses its CPU in the middle of it.
const writerWait = 20 * time.Millisecond

// activeWriters returns the peers that may be placing bytes with a revoked key, and do not finish soon.
func (d *Device) activeWriters() []writer {
	var list []writer
	d.live.Lock()
	first := true
	for in := range d.live.inbounds {
		if !in.mayPlace() {
			continue
		}
		if first { // a connection that is added from now on does not find the key
			d.barrier()
			first = false
		}
		if mark := atomic.LoadUint64(&in.block.placementSeq); mark&1 != 0 {
			list = append(list, writer{in, mark})
		}
	}
	d.live.Unlock()
	return awaitWriters(list)
}

// awaitWriters waits a little for writers, and returns those that have not finished.
func awaitWriters(list []writer) []writer {
	if len(list) == 0 {
		return nil
	}
	for end := time.Now().Add(writerWait); ; sys.Yield() {
		left := list[:0]
		for _, w := range list {
			if w.writing() {
				left = append(left, w)
			}
		}
		if list = left; len(list) == 0 || time.Now().After(end) {
			return list
		}
	}
}

// barrier orders this process's stores and loads against those of all peers, also of peers that use no fences
// of their own.
func (d *Device) barrier() {
	if d.asymmetric {
		_ = sys.Barrier() // it worked when the device was made
	} else {
		sys.FullBarrier()
	}
}
