package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

const (
	wordSize = verbs.WordSize
	tailSize = wordSize // bytes of a Write that are placed last, as one word if they are aligned
)

// frameWrite is tagged: its payload goes to an offset of the region that its key names.
type frameWrite struct{}

// makeWrite makes the next frame of a Write, or the Immediate that ends it.
func (q *qp) makeWrite(o *frame.Batch, w *verbs.Request) frameMade {
	c := &q.at
	if c.off == w.Total {
		if w.Op == transport.OpWriteImm {
			q.makeImmediate(o, w)
			return madeFrame
		}
		c.next++ // a Write of no bytes
		return madeNothing
	}
	n := min(w.Total-c.off, frame.MaxPayload)
	if w.Viewed() {
		var fits bool
		if n, fits = gathers(o, n); !fits {
			return mustWait
		}
	}
	if rest := w.Total - c.off - n; rest > 0 && rest < tailSize {
		n -= tailSize // the last bytes of a Write stay in one frame
	}
	h := frame.Header{Length: n, Op: frame.Write, A: uint64(w.Remote[0].Key), B: w.Remote[0].Offset +
		uint64(c.off)}
	if c.off+n == w.Total {
		h.Flags = frame.Last
	}
	if !q.payload(o, h, w, c.off, n) {
		return mustWait
	}
	if n >= directMin {
		q.sentLongLast = true
	}
	if c.off += n; c.off == w.Total && w.Op == transport.OpWrite {
		c.next, c.off = c.next+1, 0
	}
	c.responseFirst = true
	return madeFrame
}

// maxGathered is the most bytes of a view in one frame: they are copied, into an empty batch.
const maxGathered = 60 << 10

// gathers returns how many of n bytes of a view the next frame carries, and whether they fit the batch; if
// not, the frame must begin another one.
func gathers(o *frame.Batch, n int) (bytes int, fits bool) {
	n = min(n, maxGathered)
	return n, n <= o.MaxCopy()
}

func (frameWrite) begin(q *qp, i *incoming) error {
	r, err := q.PD.Find(transport.Key(i.A), transport.RemoteWrite, i.B, uint64(i.Length))
	if err != nil {
		return violation.ErrWrite(err)
	}
	i.r, i.at = r, int(i.B)
	if i.Length >= directMin {
		q.sentLongLast = false
	}
	return nil
}

func (k frameWrite) beginAhead(r *laneReceiver, i *incoming) error {
	if i.Ref == 0 || i.Ref > i.Number {
		return fmt.Errorf("%w: frame %d of a Write that begins with %d", transport.ErrProtocol, i.Number,
			i.Ref)
	}
	return k.begin(r.q, i)
}

func (frameWrite) end(q *qp, i *incoming) error {
	err := i.placeHeld()
	if err == nil {
		q.ReportPlaced()
	}
	return err
}

func (frameWrite) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	err := r.placeOrHoldTail(i)
	if err == nil {
		r.q.ReportPlaced()
	}
	return sequence.Data, stopNone, err
}

// placeable returns an error if the region of a tagged frame has been deregistered.
func (i *incoming) placeable() error {
	if i.r.Key() != transport.Key(i.A) {
		return givenUp(i.A)
	}
	return nil
}

func givenUp(key uint64) error {
	return &violation.Error{Reason: violation.Access,
		Err: fmt.Errorf("%w: the region of key %#x was deregistered while the peer wrote it",
			transport.ErrAccess, key)}
}

// placeTagged places a part of a tagged frame: its last bytes after all others, as one word, and after the
// checksum, if there is one, has been verified.
func (c *conn) placeTagged(b []byte) {
	i := &c.in
	if v := i.r.View; v != nil { // only for a Read, whose completion reports the bytes
		v.Scatter(i.at, b)
		i.advance(len(b))
		return
	}
	if len(b) == i.left && i.held == 0 && !c.q.checked && !c.takes.holdsTail() {
		place.Bytes(i.r.Mem[i.at:i.at+len(b)], b)
		i.advance(len(b))
		return
	}
	if n := min(len(b), i.left-tailSize); n > 0 {
		copy(i.r.Mem[i.at:i.at+n], b)
		i.advance(n)
		b = b[n:]
	}
	i.held += copy(i.last[i.held:], b)
	i.left -= len(b)
}

// placeHeld places the last bytes of a complete tagged frame.
func (i *incoming) placeHeld() error {
	if i.held == 0 {
		return nil
	}
	if err := i.placeable(); err != nil {
		return err
	}
	place.Bytes(i.r.Mem[i.at:i.at+i.held], i.last[:i.held])
	i.held = 0
	return nil
}
