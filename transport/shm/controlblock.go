package shm

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// controlBlock is what the two ends of one direction share. It lies in the arena of who receives. Each line
// is written by one side only.
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

// writing tells whether the peer is still where it was found.
func (w writer) writing() bool {
	return !w.in.ended() && atomic.LoadUint64(&w.in.block.placementSeq) == w.mark
}

// writerWait is how long one waits for a peer that is placing bytes: a copy takes less, unless the peer is
// not running.
const writerWait = time.Millisecond

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

// awaitPuts returns when no peer is in a Put to memory of the program, whose key has been revoked. A peer
// that does not come to the end of its Put in time is given up, and its process killed; while that does not
// end either, this process cannot go on.
func (d *Device) awaitPuts(e *entry) {
	sys.FullBarrier() // a Put that begins from now on finds the key gone
	if atomic.LoadUint64(&e.puts) == 0 {
		return
	}
	w := putWait{first: d.activeWriters(), last: time.Now()}
	for list := w.first; atomic.LoadUint64(&e.puts) != 0; list = d.activeWriters() {
		if len(list) == 0 || !d.probeWriters(&w) { // who was counted has ended in the middle
			atomic.StoreUint64(&e.puts, 0)
			return
		}
	}
}

// putWait is a wait for the end of Puts.
type putWait struct {
	first  []writer // those that may be in one
	last   time.Time
	lasted time.Duration // but for what this process itself may have stood still
	killed bool
	fatal  bool // Options.Fatal was called
}

// step notes that time has passed.
func (w *putWait) step() {
	now := time.Now()
	w.lasted += min(now.Sub(w.last), 10*writerWait)
	w.last = now
}

// probeWriters finds out which of the peers that a wait is for have ended, and kills those that are late. It
// tells whether any of them is still in the same copy.
func (d *Device) probeWriters(w *putWait) (writing bool) {
	w.step()
	prober, err := sys.NewProber()
	if err != nil {
		return true // the watcher of peers finds out
	}
	defer prober.Close()
	kill := w.lasted >= d.copyTimeout() && !w.killed
	fatal := w.lasted >= d.opts.PeerTimeout && !w.fatal
	for _, l := range d.links(nil) {
		if !slices.ContainsFunc(w.first, func(f writer) bool { return f.in == l.in && f.writing() }) {
			continue
		}
		if prober.Gone(l.wake) {
			l.qp.peerGone()
			continue
		}
		writing = true
		if kill {
			d.opts.Log.Error("a peer is given up, and its process killed", "peer", l.qp.Attr.Peer, "error",
				d.errNoAnswer(l.own.Pid))
			_ = sys.Kill(l.own.Pid)
		}
		if fatal && d.opts.Fatal != nil {
			go d.opts.Fatal(l.qp.Attr.Peer, fmt.Errorf("%w; nor after its process was killed",
				d.errNoAnswer(l.own.Pid)))
		}
	}
	w.killed, w.fatal = w.killed || kill, w.fatal || fatal
	return writing
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
