package verbs

import "github.com/weft-mpi/weft/transport"

// Completions is the completion queue of a queue pair's requests.
type Completions interface {
	Push(transport.WC)
	Raise() // an event
}

// Flush completes all posted requests in order: the oldest send request with the status first, all others
// flushed. A request that is done after one that is not is flushed too: nothing succeeds after a failure.
// flushed makes a completion.
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
