package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameReadWrite is a Write that answers one of our Reads. It never writes outside the destinations that the
// Read names (R6).
type frameReadWrite struct{}

// begin checks that the frame continues where the previous one ended, and that exactly the last one has the
// number of the Read.
func (frameReadWrite) begin(q *qp, i *incoming) error {
	w := q.reading()
	if w == nil || w.Op != transport.OpRead {
		return errNotAsked
	}
	p, at, n := verbs.Span(w.Local, w.Got, i.Length)
	offset, immediate := frame.SplitPlacement(i.B)
	if p == nil || n != i.Length || transport.Key(i.A) != p.Key || offset != uint64(at) {
		return notDue(i)
	}
	if w.Got+i.Length == w.Total != (i.Flags&frame.Last != 0) || !i.names(w, immediate) {
		return notItsEnd(i, w)
	}
	if !p.Alive() {
		return errDestinationGone
	}
	i.r, i.at = p.Region, at
	return nil
}

// end places the rest of the frame. The Read is complete with the last one (R4).
func (frameReadWrite) end(q *qp, i *incoming) error {
	w := q.reading()
	w.Got += i.Length
	err := i.placeHeld()
	if err == nil && w.Got == w.Total {
		q.readIsDone(w)
	}
	return err
}

// beginAhead checks that the frame goes into a destination of its Read.
func (frameReadWrite) beginAhead(r *laneReceiver, i *incoming) error {
	w, number := r.asking(i.Ref)
	if w == nil || w.Op != transport.OpRead {
		return errNotAsked
	}
	offset, immediate := frame.SplitPlacement(i.B)
	if !i.names(w, immediate) {
		return notItsEnd(i, w)
	}
	for k := range w.Local {
		p := &w.Local[k]
		if uint64(p.Key) != i.A || offset < uint64(p.Off) || offset-uint64(p.Off) > uint64(p.Len) ||
			i.Length > p.Len-int(offset-uint64(p.Off)) {
			continue
		}
		if !p.Alive() {
			return errDestinationGone
		}
		if w.Begun+i.Length > w.Total {
			break
		}
		w.Begun += i.Length
		i.asks, i.r, i.at = number, p.Region, int(offset)
		return nil
	}
	return notDue(i)
}

func (frameReadWrite) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	r.q.SQ.At(i.asks).Got += i.Length
	kind := sequence.Data
	if i.Flags&frame.Last != 0 {
		kind = sequence.Response
	}
	return kind, stopNone, i.placeHeld()
}

var (
	errNotAsked        = fmt.Errorf("%w: data of a Read that was not requested", transport.ErrProtocol)
	errDestinationGone = fmt.Errorf("%w: the destination of a Read was deregistered before it was complete",
		transport.ErrAccess)
)

func notDue(i *incoming) error {
	offset, _ := frame.SplitPlacement(i.B)
	return fmt.Errorf("%w: %d bytes of a Read for %#x at %d, which is not what is due",
		transport.ErrProtocol, i.Length, i.A, offset)
}

// names reports whether the immediate data of the present frame is right: the number of the Read in its last
// Write, otherwise zero.
func (i *incoming) names(w *verbs.Request, immediate uint64) bool {
	if i.Flags&frame.Last == 0 {
		return immediate == 0
	}
	return immediate == frame.ReadImmediate(w.Number)
}

func notItsEnd(i *incoming, w *verbs.Request) error {
	_, immediate := frame.SplitPlacement(i.B)
	return fmt.Errorf("%w: a Write of Read %d, flags %#x, immediate %d, which is not what is due",
		transport.ErrProtocol, w.Number, i.Flags, immediate)
}

// readIsDone completes our oldest Read or Atomic.
func (q *qp) readIsDone(w *verbs.Request) {
	w.Done = true
	q.read++
	q.Retire()
}

// reading returns our oldest Read or Atomic that is not done, or nil. Everything before it in the queue is
// done, so it is the head.
func (q *qp) reading() *verbs.Request {
	if q.SQ.Head == q.sequencer.given() || q.SQ.Head == q.SQ.Tail {
		return nil
	}
	if w := q.SQ.At(q.SQ.Head); w.Asks() && !w.Done {
		return w
	}
	return nil
}

// asking returns our outstanding Read or Atomic with a number, and its index in the queue.
func (r *laneReceiver) asking(number uint64) (*verbs.Request, uint32) {
	q := r.q
	for k := q.SQ.Head; k != q.at.next; k++ {
		if w := q.SQ.At(k); w.Asks() && w.Number == number && !w.Done {
			return w, k
		}
	}
	return nil, 0
}
