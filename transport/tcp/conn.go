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
	directMin   = 16 << 10 // of a frame's rest: it is read straight to its place
	readsAPass  = 8        // reads of one link before the others have their turn
)

// conn is one link of a queue pair, with the frame that is coming in over it and the rest of the frame that
// the link has taken in part.
type conn struct {
	// Fields that every pass uses are adjacent, as in the queue pair.
	q          *qp
	link       link.Link
	fd         int  // -1 once it is closed
	blocked    bool // the socket has no room; the pollers watch for it
	keepalive  keepalive.State
	in         incoming
	takes      frameTaker
	readsAhead bool // the queue pair's only link, and not encrypted: the header of a long frame is read alone
	partial    frame.Partial
}

// frameTaker is told of the frames that come in over a link.
type frameTaker interface {
	// begin takes a header, and checks what can be checked before the payload.
	begin(header []byte) error
	// misplaced takes the reason why the rest of the present payload cannot be placed.
	misplaced(err error) error
	// holdsTail reports whether the last bytes of the present frame must wait for other frames.
	holdsTail() bool
	// end takes a frame whose payload is placed.
	end() error
}

// incoming is the frame that is being received.
type incoming struct {
	// Fields that every read uses are adjacent.
	inside bool
	drop   bool // the payload is not looked at: it has come before, or is after what is wrong
	have   int  // bytes of raw: of a header, or of the CRC after a payload
	size   int  // bytes of a header, with its CRC if the queue pair has them
	left   int  // payload bytes that have not come

	raw [frame.LaneHeaderSize + frame.SumSize]byte
	frame.LaneHeader
	bad error // what is wrong with it, told when everything before it has been

	r    *verbs.Region // tagged: where it goes
	at   int
	asks uint32 // ReadWrite: the Read that asked for it
	recv uint32 // untagged: the posted Recv
	off  int    // and the place in it

	last [tailSize]byte // what has come of the last bytes of a Write, until all of them have
	held int            // of last

	control []byte // payload that goes to no region
	sum     uint32 // CRC of the payload so far, if the queue pair has them
}

// begun takes a header that has been checked.
func (i *incoming) begun(h frame.LaneHeader) {
	i.LaneHeader, i.left, i.inside = h, h.Length, true
	i.drop, i.bad, i.held, i.control = false, nil, 0, i.control[:0]
}

// receive takes what has come off the link, a few reads of it at most. It returns how many bytes have come.
// io.EOF is the end of the stream.
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

// singleFrameWrite is the first word of the only frame of a Write, without its length.
const singleFrameWrite = uint64(frame.Write)<<32 | frame.Last<<40

// placeSingleFrameWrite places what has come if that is one whole Write, as by far the most that comes by
// itself is; it does nothing with anything else, or anything that is wrong with it.
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
	r, err := q.PD.Find(&q.Windows, key, transport.RemoteWrite, at, uint64(n))
	if err != nil {
		return false
	}
	place.Bytes(r.Mem[at:at+uint64(n)], b[frame.HeaderSize:])
	q.ReportPlaced()
	return true
}

// parse takes bytes off the stream.
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

// direct is the memory that the rest of the present frame may be read into without a copy: all but its last 8
// bytes, which have to come last. Nil if it is not worth it.
func (c *conn) direct() []byte {
	i := &c.in
	if !i.inside || i.left < directMin || i.drop || i.bad != nil {
		return nil
	}
	n := i.left - tailSize
	switch i.Op {
	case frame.Write, frame.ReadWrite:
		if i.r.Key() != transport.Key(i.A) {
			return nil // given up meanwhile: place says so
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

// headerAhead is how much is read where a long frame is expected, after the rest of the present one: its
// header, and little that has to be copied.
const headerAhead = 512

// expectsLong reports whether the next frame is likely to be one whose payload can be read straight to its
// place, once its header has come: as the one before it was, unless that was the end of a Read, or its region
// has been given up, whose entry may be used by another goroutine now. In a dialogue of long Writes the frame
// comes by itself, and a read of the header alone only delays the others.
func (c *conn) expectsLong() bool {
	i := &c.in
	return c.readsAhead && !c.q.answering && i.have == 0 && i.Length >= directMin && i.bad == nil &&
		(!i.inside || i.left < directMin) &&
		i.r != nil && i.r.Key() == transport.Key(i.A) && i.r.View == nil &&
		(i.Op == frame.Write && c.checksInPlace() || i.Op == frame.ReadWrite && i.Flags&frame.Last == 0)
}

// advance counts n bytes of the present frame as placed.
func (i *incoming) advance(n int) {
	i.left -= n
	i.at += n
	i.off += n
}

// place puts a piece of the present frame's payload where it belongs, whatever is missing before the frame
// (H1).
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

// block has the pollers look for room to write, unblock ends that.
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

// keepRest keeps the rest of a frame of which the link has taken n bytes.
func (c *conn) keepRest(b []byte, n int) {
	if n < len(b) {
		c.partial.Keep(b[max(n, 0):])
		c.block()
	}
}
