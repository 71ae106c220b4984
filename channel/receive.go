package channel

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// recvRing is our ring, into which the peer writes, and where we are in it.
type recvRing struct {
	ring  []byte
	mr    transport.MR
	lines int
	slot  int // bytes

	pos        int    // the line where the next message begins
	generation uint64 // of the present lap
	first      uint64 // of the first lap
	consumed   uint32 // lines, since the beginning
	told       uint32 // of these, what the peer has been told
	current    int    // lines of the message that Next has given; 0 when there is none
}

func (r *recvRing) init(mr transport.MR, c Config, generation uint64) {
	r.ring, r.mr = mr.Bytes(), mr
	r.lines, r.slot = c.lines(), c.SlotSize
	r.generation, r.first = generation, generation
}

// word reads a flag word that the peer may be writing.
func (r *recvRing) word(at int) uint64 {
	return littleEndian(atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.ring[at]))))
}

// Next gives the next message if all of it is there. The body is the ring's own memory: it stays until Release, but the peer
// could write there at any time, so whatever is read twice must be copied first. After an error, which names what the
// peer did wrong, the channel must be failed.
func (c *Channel) Next() (kind Kind, body []byte, ok bool, err error) {
	r := &c.recv
	for c.state == StateOpen {
		at := r.pos * lineSize
		head := r.word(at)
		n := int(head & lengthMask)
		if head != headWord(r.generation, n) {
			return 0, nil, false, nil
		}
		need := linesOf(n)
		if need*lineSize > r.slot || r.pos+need > r.lines {
			return 0, nil, false, fmt.Errorf("%w: a message of %d bytes at line %d of a ring of %d lines, slots of %d bytes",
				transport.ErrProtocol, n, r.pos, r.lines, r.slot)
		}
		if r.word(at+need*lineSize-8) != r.generation {
			c.stats.HeadsNoTail++
			return 0, nil, false, nil
		}
		header := binary.LittleEndian.Uint64(r.ring[at+8:])
		if err := c.send.credited(uint32(header)); err != nil {
			return 0, nil, false, err
		}
		switch k := Kind(header >> 32); k {
		case skip:
			r.advance(r.lines - r.pos)
		case credit:
			r.advance(need)
		default:
			if k == 0 || k >= kinds {
				return 0, nil, false, fmt.Errorf("%w: message of %v", transport.ErrProtocol, k)
			}
			r.current = need
			c.stats.Received++
			c.stats.RecvBytes += uint64(n)
			body := at + 8 + headerBytes
			return k, r.ring[body : body+n : body+n], true, nil
		}
	}
	return 0, nil, false, nil
}

// Release gives the lines of the last message that Next gave back to the peer; the credit travels with the next message, or
// with Progress.
func (c *Channel) Release() {
	c.recv.advance(c.recv.current)
	c.recv.current = 0
}

func (r *recvRing) advance(lines int) {
	r.consumed += uint32(lines)
	if r.pos += lines; r.pos == r.lines {
		r.pos = 0
		r.generation++
	}
}

// littleEndian turns a word that was loaded in the machine's order into the value that its bytes have on the wire.
func littleEndian(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}
