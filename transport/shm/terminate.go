package shm

import (
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// terminateText is the length of the text in a Terminate at most: with it the frame fits into
// terminateReserve.
const terminateText = maxControl

var _ [terminateReserve - headerSize - terminateText]struct{}

// TellFailed tells the peer why the connection is cut. There is always room for it.
func (q *qp) TellFailed(cause error) {
	if !q.connected() {
		return
	}
	t := queuepair.TerminateOf(cause, terminateText)
	if !q.out.free(frameSize(len(t.Text))) {
		return // a peer that counts wrong
	}
	q.out.begin(header{length: len(t.Text), op: frameTerminate, flags: flagLast, a: uint64(t.Reason),
		b: t.Read})
	q.out.put(t.Text)
	q.out.publish()
	q.tell()
}

// terminated takes a Terminate.
func (q *qp) terminated(h header, text []byte) {
	reason := violation.Reason(min(h.a, 0xff))
	q.Terminated(queuepair.Terminate{Reason: reason, Read: h.b, Text: text}, reason, q.reads.asking())
}
