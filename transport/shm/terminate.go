package shm

import (
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// terminateText is the maximum length of the text in a Terminate: with it the frame fits terminateReserve.
const terminateText = maxControl

var _ [terminateReserve - headerSize - terminateText]struct{}

// TellFailed sends the peer a Terminate with the reason. There is always room for it.
func (q *qp) TellFailed(cause error) {
	if !q.connected() {
		return
	}
	t := queuepair.TerminateOf(cause, terminateText)
	if !q.out.free(frameSize(len(t.Text))) {
		return // the peer's count is wrong
	}
	q.out.begin(header{length: len(t.Text), op: frameTerminate, flags: flagLast, a: uint64(t.Reason),
		b: t.Read})
	q.out.put(t.Text)
	q.out.publish()
	q.tell()
}

// terminated handles a Terminate.
func (q *qp) terminated(h header, text []byte) {
	reason := violation.Reason(min(h.a, 0xff))
	q.Terminated(queuepair.Terminate{Reason: reason, Read: h.b, Text: text}, reason, q.reads.asking())
}
