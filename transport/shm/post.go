package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// gatherFrames is how many requests FlagMore holds back at most.
const gatherFrames = 64

// PostSend checks a request and carries it out, or queues it.
//
// A Write of one element into the region of the last Write is carried out here. It checks only that element,
// the key in the peer's table, and whether the peer wants to be notified.
func (q *qp) PostSend(wr *transport.SendWR) error {
	if !q.open || wr == nil || wr.Op != transport.OpWrite || len(wr.Local) != 1 || len(wr.Remote) != 1 ||
		wr.Flags&^transport.FlagMore != 0 || wr.Lane != transport.AnyLane {
		return q.post(wr)
	}
	s, t := &wr.Local[0], &wr.Remote[0]
	r, ok := s.MR.(*verbs.Region)
	if !ok || r == nil || r.PD() != q.pd || t.Key == 0 || t.Key != q.key && !q.swapTarget(t.Key) {
		return q.post(wr)
	}
	n := s.Length
	if n <= 0 || uint64(n) != t.Length || t.Offset > q.length || t.Length > q.length-t.Offset ||
		uint(s.Offset) > uint(len(r.Mem)) || n > len(r.Mem)-s.Offset {
		return q.post(wr)
	}
	sys.StoreRelease(q.placementSeq, q.placementMark+1)
	stands := atomic.LoadUint64(q.notifyEnable)&notifyClosed == 0 &&
		atomic.LoadUint64(q.entry) == uint64(q.key)
	if stands {
		place.At(unsafe.Add(q.base, t.Offset), unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.Mem)), s.Offset),
			n)
	}
	q.placementMark += 2
	sys.StoreRelease(q.placementSeq, q.placementMark)
	if !stands {
		return q.post(wr)
	}
	if atomic.LoadUint64(q.notifyEnable) != 0 {
		q.tellWrote()
	}
	return nil
}

// post is PostSend for any request.
func (q *qp) post(wr *transport.SendWR) error {
	if err := q.Post(wr); err != nil {
		return err
	}
	q.open = false
	if wr.Op != transport.OpRead {
		q.send.waiting++
	}
	q.work()
	if wr.Flags&transport.FlagMore == 0 || q.SQ.Tail-q.send.next >= gatherFrames {
		q.transmit(false)
	}
	if q.SQ.Head != q.SQ.Tail && !q.out.waits {
		q.scq.wakeSleepers() // a pass has something to do
	}
	return nil
}

// Flush sends what FlagMore held back.
func (q *qp) Flush() {
	if q.connected() && q.busy {
		q.transmit(false)
	}
}

// retire completes the requests that are done. Copies may overtake Reads, but no other request that waits.
func (q *qp) retire() {
	q.Retire()
	q.open = q.Accepts() && q.send.waiting == 0
}
