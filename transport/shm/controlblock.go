package shm

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// controlBlock is what the two ends of one direction share. It lies in the receiver's arena. Each line is
// written by one side only.
type controlBlock struct {
	tail uint64 // by the sender: bytes of frames that are in the ring, since the beginning; and tailEnded
	_    [7]uint64

	// by the sender: odd while it looks a key up and places bytes by it; steps at both ends of that
	placementSeq uint64
	writeSeq     uint64 // by the sender: steps with every Write or Atomic that it tells of
	wants        uint64 // by the sender: 1 while it waits for room, or for its frames to be carried out
	heartbeatSeq uint64 // by the sender: steps with its Ticks
	_            [4]uint64

	notifyEnable uint64 // by the receiver: what the sender does when it has placed something
	_            [7]uint64

	consumed uint64 // by the receiver: bytes of frames that are carried out
	_        [7]uint64

	ring [ringSize]byte
}

const (
	blockSize = 4 << 10
	ringSize  = blockSize - 4*64
)

var _ [blockSize - unsafe.Sizeof(controlBlock{})]struct{}
var _ [unsafe.Sizeof(controlBlock{}) - blockSize]struct{}

// tailEnded is the bit of tail with which the sender says that it uses the receiver's memory no more.
const tailEnded = 1 << 63

// Bits of notifyEnable.
const (
	notifyTell   = 1 << iota // tell the completion queues
	notifyClosed             // place nothing any more
)

// receiveBlock is the receiver's hold on a block. The peer may write there until its end of the connection is
// closed, whatever has become of ours.
type receiveBlock struct {
	arena  *arena
	off    int64
	block  *controlBlock
	gone   atomic.Bool // the peer's process is no more
	closed atomic.Bool // both directions were closed in order: the peer places nothing any more
}

// ended reports whether the peer does not write any more.
func (in *receiveBlock) ended() bool {
	return in.gone.Load() || atomic.LoadUint64(&in.block.tail)&tailEnded != 0
}

// mayPlace reports whether the peer may place bytes by a key.
func (in *receiveBlock) mayPlace() bool { return !in.closed.Load() && !in.ended() }

func newReceiveBlock(a *arena) (*receiveBlock, error) {
	off, err := a.block()
	if err != nil {
		return nil, err
	}
	in := &receiveBlock{arena: a, off: off, block: controlBlockAt(a.mem, uint64(off))}
	in.block.notifyEnable = notifyTell // until the queue polls: taking it back needs no barrier
	return in, nil
}

// writer is a peer that is found placing bytes.
type writer struct {
	in   *receiveBlock
	mark uint64
}

// writing reports whether the peer is still where it was found.
func (w writer) writing() bool {
	return !w.in.ended() && atomic.LoadUint64(&w.in.block.placementSeq) == w.mark
}

// writerWait is how long one waits for a peer that is placing bytes before its process is looked at, which
// takes many system calls: a copy takes less, also if the peer lost its processor in the middle of it.
const writerWait = 20 * time.Millisecond

// activeWriters are the peers that may be placing bytes by a key that has been revoked, and do not end that
// soon.
func (d *Device) activeWriters() []writer {
	var list []writer
	d.live.Lock()
	first := true
	for in := range d.live.inbounds {
		if !in.mayPlace() {
			continue
		}
		if first { // one that is added from now on finds the key gone
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

// awaitWriters waits a little for writers, and gives those that are left.
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

// barrier has all peers see what this process has stored, and stored what they see, where they use no
// barriers themselves.
func (d *Device) barrier() {
	if d.asymmetric {
		_ = sys.Barrier() // it was there when the device was made
	} else {
		sys.FullBarrier()
	}
}
