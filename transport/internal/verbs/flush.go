package verbs

import "github.com/weft-mpi/weft/transport"

// Completions is the completion queue of a queue pair's requests.
type Completions interface {
	Push(transport.WC)
	Raise() // an event
}

// Flush completes all posted requests in order, with completions that flushed makes. The oldest send request
// gets the status first, and all others StatusFlushed; a request's Failed takes precedence. Requests that are
// done are flushed as well, because an older one is not: no request succeeds after one that failed.
func Flush(sq *SendQueue, rq *RecvQueue, send, recv Completions, first transport.Status,
	flushed func(id uint64, op transport.Opcode) transport.WC) {
	for sq.Head != sq.Tail {
		w := sq.At(sq.Head)
		wc := flushed(w.ID, w.Op)
		wc.Status = first
		if w.Failed != 0 {
			wc.Status = w.Failed
		}
		first = transport.StatusFlushed
		send.Push(wc)
		if w.Flags&transport.FlagNotify != 0 {
			send.Raise()
		}
		sq.Head++
	}
	for r := rq.Front(); r != nil; r = rq.Front() {
		recv.Push(flushed(r.ID, transport.OpRecv))
		if r.Notify {
			recv.Raise()
		}
		rq.Pop()
	}
}
