package tcp

import "github.com/weft-mpi/weft/transport"

// gatherFrames is how many requests FlagMore holds back at most.
const gatherFrames = 64

// PostSend checks a request, queues it, and sends it at once unless FlagMore is set.
func (q *qp) PostSend(wr *transport.SendWR) error {
	if err := q.Post(wr); err != nil {
		return err
	}
	if wr.Flags&transport.FlagMore == 0 || q.SQ.Tail-q.at.next >= gatherFrames {
		if !q.blocked {
			q.sequencer.transmit()
		}
	}
	return nil
}

// Flush sends what FlagMore held back.
func (q *qp) Flush() {
	if q.open && !q.blocked && q.sequencer.hasOutput() {
		q.sequencer.transmit()
	}
}
