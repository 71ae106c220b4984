package tcp

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
)

const (
	stagingSize = 64 << 10
	directMin   = 16 << 10 // remaining bytes of a frame that are read directly to their destination
	readsAPass  = 8        // reads of one link before the others have their turn
)

// conn is one link of a queue pair, with the frame that is being received over it and the rest of a frame
// that the link has sent in part.
type conn struct {
	// Fields that every pass uses are adjacent, as in the queue pair.
	q          *qp
	link       link.Link
	fd         int  // -1 once it is closed
	blocked    bool // the socket has no room; the pollers watch for it
	keepalive  keepalive.State
	in         incoming
	takes      frameTaker
	readsAhead bool // the queue pair's only link, not encrypted: headers of long frames may be read alone
	partial    frame.Partial
}

// frameTaker handles the frames that are received over a link.
type frameTaker interface {
	// begin handles a header, and checks what can be checked before the payload.
	begin(header []byte) error
	// misplaced handles the reason why the rest of the present payload cannot be placed.
	misplaced(err error) error
	// holdsTail reports whether the last bytes of the present frame must wait for other frames.
	holdsTail() bool
	// end handles a frame whose payload is placed.
	end() error
}

// incoming is the frame that is being received.
type incoming struct {
	// Fields that every read uses are adjacent.
	inside bool
	drop   bool // the payload is dropped: a duplicate, or after an error
	have   int  // bytes of raw: of a header, or of the CRC after a payload
	size   int  // bytes of a header, with its CRC if the queue pair has them
	left   int  // payload bytes not yet received

	raw [frame.LaneHeaderSize + frame.SumSize]byte
	frame.LaneHeader
	bad error // its error, reported after everything before it

	r    *verbs.Region // tagged: its destination
	at   int
	asks uint32 // ReadWrite: the index in the send queue of the Read that it answers
	recv uint32 // untagged: the index of the posted Recv
	off  int    // and the offset in it

	last [tailSize]byte // the last bytes of a Write, until all are received
	held int            // of last

	control []byte // payload that is not placed in a region
	sum     uint32 // CRC of the payload so far, if the queue pair has them
}

// begun begins a frame whose header has been checked.
func (i *incoming) begun(h frame.LaneHeader) {
	i.LaneHeader, i.left, i.inside = h, h.Length, true
	i.drop, i.bad, i.held, i.control = false, nil, 0, i.control[:0]
}

// receive handles received data, with a few reads of the link at most. It returns the number of bytes
// received. io.EOF is the end of the stream.
func (c *conn) receive() (came int, err error) {
	staging := c.q.rcq.staging[:]
	for turn := 0; c.fd >= 0; turn++ {
		dst, staging := c.direct(), staging
		if dst == nil && c.expectsLong() {
			staging = staging[:min(c.in.left+headerAhead, stagingSize)]
		}
		asked, n, err := c.link.Read(dst, staging, turn >= readsAPass)
		if n <= 0 || err != nil {
			if c.link.Heard() {
				c.keepalive.Received = true
			}
			if n == 0 && err == nil {
				err = io.EOF
			}
			return came, err
		}
		c.keepalive.Received = true
		came += n
		placed := min(n, len(dst))
		if placed > 0 {
			if c.q.checked {
				c.in.sum = crc32.Update(c.in.sum, frame.Castagnoli, dst[:placed])
			}
			c.in.advance(placed)
		}
		if rest := staging[:n-placed]; len(rest) > 0 && !c.placeSingleFrameWrite(rest) {
			if err := c.parse(rest); err != nil {
				return came, err
			}
		}
		if n < asked {
			return came, nil // nothing is left in the socket
		}
	}
	return came, nil
}

// singleFrameWrite is the first word of the header of a Write's only frame, without the length.
const singleFrameWrite = uint64(frame.Write)<<32 | frame.Last<<40

// placeSingleFrameWrite is a fast path: it places b if b is exactly one complete, valid Write, and returns
// false otherwise. Most data received in one read has this form.
func (c *conn) placeSingleFrameWrite(b []byte) bool {
	q, i := c.q, &c.in
	n := len(b) - frame.HeaderSize
	if i.inside || i.have > 0 || i.size != frame.HeaderSize || q.awaitingFirstFrame || q.PeerEnd() ||
		n < tailSize {
		return false
	}
	if binary.LittleEndian.Uint64(b) != singleFrameWrite|uint64(n) || n > frame.MaxPayload {
		return false
	}
	key, at := transport.Key(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[16:])
	r, err := q.PD.Find(key, transport.RemoteWrite, at, uint64(n))
	if err != nil {
		return false
	}
	if n >= directMin {
		q.sentLongLast = false
	}
	place.Bytes(r.Mem[at:at+uint64(n)], b[frame.HeaderSize:])
	q.ReportPlaced()
	return true
}

// parse parses bytes of the stream.
func (c *conn) parse(b []byte) error {
	i := &c.in
	for {
		if !i.inside {
			header := b
			if i.have == 0 && len(b) >= i.size {
				b = b[i.size:]
			} else {
				n := copy(i.raw[i.have:i.size], b)
				i.have += n
				b = b[n:]
				if i.have < i.size {
					return nil
				}
				i.have, header = 0, i.raw[:]
			}
			if err := c.takes.begin(header); err != nil {
				return err
			}
		}
		if n := min(len(b), i.left); n > 0 {
			if err := c.place(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		if i.left > 0 {
			return nil
		}
		if c.q.checked && i.Length > 0 {
			n := copy(i.raw[i.have:frame.SumSize], b)
			i.have += n
			b = b[n:]
			if i.have < frame.SumSize {
				return nil
			}
			i.have = 0
			if err := frame.CheckPayload(i.raw[:frame.SumSize], i.sum, i.Op, i.Length); err != nil {
				return err
			}
		}
		i.inside = false
		if err := c.takes.end(); err != nil {
			return err
		}
		if len(b) == 0 || c.fd < 0 {
			return nil
		}
	}
}

// direct returns the memory into which the rest of the present frame may be read without a copy: all but its
// last 8 bytes, which must be placed last. It returns nil if that is not worthwhile.
func (c *conn) direct() []byte {
	i := &c.in
	if !i.inside || i.left < directMin || i.drop || i.bad != nil {
		return nil
	}
	n := i.left - tailSize
	switch i.Op {
	case frame.Write, frame.ReadWrite:
		if i.r.Key() != transport.Key(i.A) {
			return nil // deregistered meanwhile: place reports it
		}
		if i.r.View != nil {
			return nil
		}
		if i.Op == frame.Write && !c.checksInPlace() {
			return nil
		}
		return i.r.Mem[i.at : i.at+n]
	case frame.Send:
		p, at, k := verbs.Span(c.q.RQ.At(i.recv).Local, i.off, n)
		if p == nil || !p.Alive() {
			return nil
		}
		return p.Region.Mem[at : at+k]
	}
	return nil
}

// checksInPlace reports whether a Write's checksum may be computed from its target. Where others may write to
// the target meanwhile, it must be computed from the bytes that arrived.
func (c *conn) checksInPlace() bool { return !c.q.checked || c.in.r.Rights&transport.SoleWriter != 0 }

// headerAhead is how much is read beyond the present frame when a long frame is expected: its header, and few
// bytes that must be copied.
const headerAhead = 512

// expectsLong reports whether the next frame probably has a payload that can be read directly to its
// destination: the last one did, it was not the last frame of a Read, and its region is still registered. It
// returns false while long Writes go both ways, because reading the header separately would only add latency.
func (c *conn) expectsLong() bool {
	i := &c.in
	return c.readsAhead && !c.q.sentLongLast && i.have == 0 && i.Length >= directMin && i.bad == nil &&
		(!i.inside || i.left < directMin) &&
		i.r != nil && i.r.Key() == transport.Key(i.A) && i.r.View == nil &&
		(i.Op == frame.Write && c.checksInPlace() || i.Op == frame.ReadWrite && i.Flags&frame.Last == 0)
}

// advance notes that n bytes of the present frame are placed.
func (i *incoming) advance(n int) {
	i.left -= n
	i.at += n
	i.off += n
}

// place places a part of the present frame's payload, even if earlier frames are missing (H1).
func (c *conn) place(p []byte) (err error) {
	i := &c.in
	if c.q.checked {
		i.sum = crc32.Update(i.sum, frame.Castagnoli, p)
	}
	left := i.left - len(p)
	switch {
	case i.drop || i.bad != nil:
	case i.Op == frame.Write || i.Op == frame.ReadWrite:
		if err = i.placeable(); err == nil {
			c.placeTagged(p)
		}
	case i.Op == frame.Send:
		err = c.placeUntagged(p)
	default:
		i.control = append(i.control, p...)
	}
	i.left = left
	if err != nil {
		return c.takes.misplaced(err)
	}
	return nil
}

// block makes the pollers watch for room to write; unblock ends that.
func (c *conn) block() {
	if !c.blocked {
		c.blocked = true
		c.q.rewatch(c)
	}
}

func (c *conn) unblock() {
	if c.blocked {
		c.blocked = false
		c.q.rewatch(c)
	}
}

// keepRest keeps the rest of a frame of which the link has sent n bytes.
func (c *conn) keepRest(b []byte, n int) {
	if n < len(b) {
		c.partial.Keep(b[max(n, 0):])
		c.block()
	}
}
