package inproc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// Drive does what the peer has asked for, then sends what can be sent.
func (q *qp) Drive() bool {
	q.mu.Lock()
	in := q.inbox
	q.inbox = nil
	q.mu.Unlock()
	for _, f := range in {
		if q.Ended() {
			return true
		}
		if err := f(q); err != nil {
			q.Fail(err, transport.StatusFlushed)
		}
	}
	before := q.next
	q.transmit()
	return len(in) > 0 || q.next != before
}

// place puts a Write into memory, its last word after all others.
func (q *qp) place(to []transport.Segment, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	mem, err := q.reach(to[0], transport.RemoteWrite)
	if err != nil {
		return err
	}
	n := max(len(data)-verbs.WordSize, 0)
	copy(mem[:n], data)
	if len(data) >= verbs.WordSize && verbs.Aligned(mem, n) {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[n])), binary.NativeEndian.Uint64(data[n:]))
	} else {
		copy(mem[n:], data[n:])
	}
	q.ReportPlaced()
	return nil
}

func (q *qp) reach(s transport.Segment, need transport.Access) ([]byte, error) {
	r, err := q.PD.Find(s.Key, need, s.Offset, s.Length)
	if err != nil {
		return nil, err
	}
	return r.Mem[s.Offset:][:s.Length], nil
}

// deliver uses a posted Recv.
func (q *qp) deliver(data []byte, wc transport.WC, solicited bool) error {
	e := q.RQ.Front()
	if e == nil {
		return fmt.Errorf("%w: a message of the peer found no Recv posted", transport.ErrProtocol)
	}
	err := scatter(e.Local, data)
	if wc.Err = err; errors.Is(err, transport.ErrInvalid) {
		wc.Status = transport.StatusLocalProt
	} else if err != nil {
		wc.Status = transport.StatusLocalLength
	}
	q.Received(wc, solicited)
	return err
}

// scatter copies data to the elements of a list.
func scatter(list []verbs.Piece, data []byte) error {
	for _, p := range list {
		if !p.Alive() {
			return fmt.Errorf("%w: a region of a posted request was deregistered", transport.ErrInvalid)
		}
		data = data[copy(p.Region.Mem[p.Off:p.Off+p.Len], data):]
	}
	if len(data) > 0 {
		return fmt.Errorf("%w: a message is %d bytes longer than its Recv", transport.ErrProtocol, len(data))
	}
	return nil
}

// asked is a Read or an Atomic of the peer.
type asked struct {
	op      transport.Opcode
	number  uint64
	from    []transport.Segment
	operand uint64
}

// respond answers the peer. One that asks for what it may not have ends the connection.
func (q *qp) respond(a *asked) (err error) {
	var data []byte
	var parts [][]byte // of the memory that is read, which may change until the bytes are on their way
	for _, s := range a.from {
		var mem []byte
		switch {
		case s.Length == 0:
		case a.op == transport.OpRead:
			mem, err = q.reach(s, transport.RemoteRead)
			parts = append(parts, mem)
		default:
			if mem, err = q.reach(s, transport.RemoteAtomic); err == nil && !verbs.Aligned(mem, 0) {
				err = fmt.Errorf("%w: an Atomic on a word that is not aligned", transport.ErrAccess)
			}
			if err == nil {
				old := atomic.AddUint64((*uint64)(unsafe.Pointer(&mem[0])), a.operand) - a.operand
				data = binary.NativeEndian.AppendUint64(data, old)
				q.ReportPlaced()
			}
		}
		if err != nil {
			break
		}
	}
	q.post(func(p *qp) error {
		for _, mem := range parts {
			data = append(data, mem...)
		}
		return p.completeRead(a.number, data, err)
	})
	return err
}

// completeRead takes the answer to our oldest Read or Atomic.
func (q *qp) completeRead(number uint64, data []byte, err error) error {
	i := q.SQ.Head
	for !q.SQ.At(i).Asked || q.SQ.At(i).Number != number {
		i++
	}
	w := q.SQ.At(i)
	if err != nil {
		w.Failed = transport.StatusRemoteAccess
		return err
	}
	if err := scatter(w.Local, data); err != nil {
		w.Failed = transport.StatusLocalProt
		return err
	}
	w.Done, w.Got = true, len(data)
	q.asked--
	return nil
}

// peerClosed notes that the peer has closed its direction.
func (q *qp) peerClosed() error {
	q.PeerClosed()
	q.MaybeClosed()
	return nil
}

// peerFailed ends the QP for what its peer says. What is the peer's own affair counts as its loss.
func (q *qp) peerFailed(cause error) error {
	if errors.Is(cause, transport.ErrAccess) || errors.Is(cause, transport.ErrProtocol) {
		return cause
	}
	return fmt.Errorf("%w: %w", transport.ErrPeerLost, cause)
}
