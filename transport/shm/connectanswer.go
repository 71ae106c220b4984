package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
)

// answerRequests answers the requests of other ranks, and reports whether there was any. The lock is held.
func (e *endpoint) answerRequests() (found bool) {
	r := &e.requests
	for i := range r.table.entries {
		x := &r.table.entries[i]
		switch atomic.LoadUint64(&x.state) {
		case entryWithdrawn:
			atomic.StoreUint64(&x.state, entryFree)
		case entryAsked:
			found = true
			e.answerRequest(x)
			if len(r.answered) == wokenAtOnce {
				r.wakeAnswered()
			}
		}
	}
	r.wakeAnswered()
	return found
}

// wokenAtOnce is how many requests of goroutines that sleep are answered before these are woken: each of them
// might take the core at once, find one answer, and sleep again.
const wokenAtOnce = 16

// wakeAnswered wakes the goroutines that have answers. If this process ends before it does, they wake up
// within probePeriod. The lock is held.
func (r *requests) wakeAnswered() {
	for _, owner := range r.answered {
		r.socket.Signal(owner)
	}
	r.answered = r.answered[:0]
}

// answerRequest answers one request.
func (e *endpoint) answerRequest(x *connectEntry) {
	initiator, responder := x.initiator, x.responder
	at, block := location{pid: x.pid, fd: x.fd, memory: x.memory}, x.block
	if !e.id.Meets(initiator, responder) {
		reply(x, entryRefused)
		return
	}
	p, ok := e.table.Request(responder, initiator)
	if !ok {
		reply(x, entryStays)
		return
	}
	q, err := e.admit(x, p, initiator, at, block)
	if err != nil {
		reply(x, entryRefused)
		if e.table.Context().Err() == nil {
			e.report(fmt.Sprintf("rank %d, process %d", transport.RankOf(initiator), at.pid), ended(err))
		}
	}
	e.table.Accepted(p, q)
}

// ended returns the error of opening memory of another process; if the process no longer exists, or no longer
// has the memory, its rank is lost.
func ended(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%w: its process has ended: %w", transport.ErrPeerLost, err)
	}
	return err
}

// reply answers a request; false if it was withdrawn.
func reply(x *connectEntry, state uint64) bool {
	return atomic.CompareAndSwapUint64(&x.state, entryAsked, state)
}

// admit makes the responder's end of a connection; nil if the request was withdrawn.
func (e *endpoint) admit(x *connectEntry, p *cm.Peer[*qp], initiator uint32, at location, block uint64) (*qp,
	error) {
	mem, err := e.mapArena(at, transport.RankOf(initiator))
	if err != nil {
		return nil, err
	}
	theirs, theirPrivate, err := readOffer(mem, block)
	var f *peerMapping
	if err == nil {
		f, err = e.dev.mapping(theirs, mem, int(at.pid))
	}
	if err != nil {
		_ = sys.UnmapShared(mem)
		return nil, err
	}
	if !p.Callbacks.TryLock() { // by an attempt through the socket
		f.close()
		return nil, cm.ErrBusy
	}
	defer p.Callbacks.Unlock()
	mine, private, err := e.prepare(initiator)
	if err != nil {
		f.close()
		return nil, err
	}
	e.dev.writeOffer(mine, private)
	if !reply(x, uint64(mine.in.off)) {
		f.close()
		e.dev.drop(mine, nil)
		return nil, nil
	}
	// asked before the connection can end, and the memory be unmapped
	if t := connectTableOf(mem); t.mustWake() {
		e.requests.answered = append(e.requests.answered, t.wake.address())
	}
	return e.connected(int(at.pid), initiator, mine, theirs, f, theirPrivate), nil
}
