package shm

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// terminate is why a connection is cut.
type terminate uint64

const (
	terminateLocal   terminate = iota + 1 // nothing that the peer has done
	terminateAccess                       // key, domain, right or bounds
	terminateKey                          // a key that cannot be invalidated
	terminateProto                        // another rule was broken
	terminateNoRecv                       // a message found no Recv
	terminateReads                        // too many Reads
	terminateTooLong                      // a message was longer than its Recv
	terminateOwn                          // who says it asked for what it may not have
)

func (t terminate) String() string {
	names := [...]string{"", "local error", "access refused", "no such key", "protocol violation",
		"no Recv", "too many Reads", "message too long",
		"own request refused"}
	if int(t) < len(names) && t > 0 {
		return names[t]
	}
	return fmt.Sprintf("code %d", uint64(t))
}

// terminateText is how much of the reason is said: with it the frame has place in terminateReserve.
const terminateText = maxControl

var _ [terminateReserve - headerSize - terminateText]struct{}

// TellFailed says why the connection is cut. There is always room for it.
func (q *qp) TellFailed(cause error) {
	if !q.connected() {
		return
	}
	code := terminateLocal
	var read uint64
	var v *violation
	var r *queuepair.RefusedRead
	var own *refused
	switch {
	case errors.As(cause, &v):
		code = v.code
	case errors.As(cause, &r):
		code, read = terminateAccess, r.Number+1
	case errors.As(cause, &own):
		code = terminateOwn
	case errors.Is(cause, transport.ErrProtocol):
		code = terminateProto
	}
	text := cause.Error()
	text = text[:min(len(text), terminateText)]
	if !q.out.free(frameSize(len(text))) {
		return // a peer that counts wrong
	}
	q.out.begin(header{length: len(text), op: frameTerminate, flags: flagLast, a: uint64(code), b: read})
	q.out.put([]byte(text))
	q.out.publish()
	q.tell()
}

// terminated takes a Terminate: the first error was on the other side.
func (q *qp) terminated(h header, text []byte) {
	cause := transport.ErrProtocol
	status := transport.StatusRemoteOp
	switch code := terminate(h.a); code {
	case terminateAccess, terminateKey, terminateOwn:
		cause, status = transport.ErrAccess, transport.StatusRemoteAccess
	case terminateLocal:
		cause = transport.ErrPeerLost
	case terminateNoRecv:
		status = transport.StatusRNR
	}
	if w := q.asking(); w != nil && h.b != 0 && w.Number == h.b-1 {
		w.Failed = status
	}
	q.Fail(fmt.Errorf("%w (%v: %q): %w", queuepair.ErrTerminated, terminate(h.a), text, cause),
		transport.StatusFlushed)
}
