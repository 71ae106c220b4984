package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameAtomic requests an Atomic on this end's memory.
type frameAtomic struct{ ordinaryFrame }

// makeAtomic makes the frame of an Atomic, unless as many requests as allowed are outstanding.
func (q *qp) makeAtomic(o *frame.Batch, w *verbs.Request) frameMade {
	c := &q.at
	if q.asksEnough() {
		return mustWait
	}
	c.reads++
	c.next++
	q.atomicFrame(o, w)
	c.responseFirst = true
	return madeFrame
}

func (frameAtomic) end(q *qp, i *incoming) error { return q.answer.add(parseAtomic, i) }

func (frameAtomic) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	return sequence.Request, stopNone, r.storeReadRequest(parseAtomic, i)
}

// atomicFrame makes the frame of an Atomic.
func (q *qp) atomicFrame(o *frame.Batch, w *verbs.Request) {
	b := o.Begin(frame.Header{Length: frame.SegmentSize, Op: frame.Atomic, Flags: frame.Last, A: w.Number},
		frame.SegmentSize)
	frame.PutSegment(b, transport.Segment{Key: w.Remote[0].Key, Offset: w.Remote[0].Offset, Length: w.Imm})
}

// parseAtomic parses an Atomic and checks everything that needs no region. Its operand stands
// where a Read's segment has its length.
func parseAtomic(h frame.Header, payload []byte) (readResponse, error) {
	if len(payload) != frame.SegmentSize {
		return readResponse{}, fmt.Errorf("%w: an Atomic of %d bytes", transport.ErrProtocol, len(payload))
	}
	a := readResponse{number: h.A, atomic: true}
	a.src[0] = frame.ParseSegment(payload)
	return a, nil
}

// frameAtomicDone answers an Atomic of ours with the previous value of the word, in this host's byte order.
type frameAtomicDone struct{ ordinaryFrame }

func (frameAtomicDone) end(q *qp, i *incoming) error {
	w := q.reading()
	if w != nil && w.Number != i.A {
		w = nil
	}
	if err := placeOriginal(w, i); err != nil {
		return err
	}
	q.readIsDone(w)
	return nil
}

func (frameAtomicDone) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	w, _ := r.asking(i.A)
	return sequence.Response, stopNone, placeOriginal(w, i)
}

// placeOriginal stores the answer to the Atomic w.
func placeOriginal(w *verbs.Request, i *incoming) error {
	if w == nil || w.Op == transport.OpRead {
		return fmt.Errorf("%w: end of Atomic %d, which is not what is due", transport.ErrProtocol, i.A)
	}
	if !w.Local[0].Alive() {
		return fmt.Errorf("%w: the destination of an Atomic was deregistered before it was complete",
			transport.ErrAccess)
	}
	place.Original(w, i.B)
	return nil
}
