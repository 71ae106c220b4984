package tcp

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// terminate is why a connection is cut: layer, type and code as in the IANA registry of RDDP errors, where it has one.
type terminate uint32

const (
	terminateLocal   terminate = 0x0_00_00 // RDMAP, local catastrophic error
	terminateAccess  terminate = 0x0_01_02 // RDMAP, remote protection: access rights; key and bounds alike
	terminateKey     terminate = 0x0_01_09 // RDMAP, remote protection: a key that cannot be invalidated
	terminateProto   terminate = 0x0_02_06 // RDMAP, remote operation: unexpected opcode
	terminateNoRecv  terminate = 0x1_02_02 // DDP, untagged: no buffer available
	terminateReads   terminate = 0x1_02_03 // DDP, untagged: message number out of range
	terminateTooLong terminate = 0x1_02_05 // DDP, untagged: message too long for the buffer

	terminateChecksum terminate = 0x2_00_02 // LLP, MPA: CRC error
)

func (t terminate) String() string {
	return fmt.Sprintf("layer %d, type %d, code %d", t>>16, t>>8&0xff, t&0xff)
}

// errTerminated marks what the peer has told us of.
var errTerminated = errors.New("terminated by the peer")

const terminateText = maxText

// tellTerminate says why the connection is cut, if the socket takes it at once and no frame stands half-written.
func (q *qp) tellTerminate(cause error) {
	if q.fd < 0 || !q.carry.empty() || errors.Is(cause, errTerminated) ||
		errors.Is(cause, transport.ErrPeerLost) && !errors.Is(cause, errSilent) {
		return
	}
	if q.quiet {
		return // the peer may be in streaming mode yet
	}
	code := terminateLocal
	var read uint64
	var v *violation
	var refused *refusedRead
	switch {
	case errors.As(cause, &v):
		code = v.code
	case errors.As(cause, &refused):
		code, read = terminateAccess, refused.number+1
	case errors.Is(cause, transport.ErrProtocol):
		code = terminateProto
	}
	text := cause.Error()
	text = text[:min(len(text), terminateText)]
	h := header{op: opTerminate, flags: flagLast, a: uint64(code), b: read}
	if q.lanes != nil {
		q.lanes.tell(h, []byte(text))
		return
	}
	var b []byte
	if !q.at.greeted {
		b = appendFrame(b, header{op: opReady, flags: flagLast}, nil, q.checked)
	}
	b = appendFrame(b, h, []byte(text), q.checked)
	if q.secure != nil {
		q.secure.tell(b)
	} else {
		sys.Write(q.fd, b)
	}
	drain(q.fd, make([]byte, stagingSize))
}

// drain takes what the peer has sent out of the socket: closing it over bytes that nobody has read resets the connection, and
// the peer might never see what was said last.
func drain(fd int, sink []byte) {
	for range drainMost / stagingSize {
		if n, err := sys.Read(fd, sink); n <= 0 || err != nil {
			return
		}
	}
}

// drainMost is more than a socket usually holds.
const drainMost = 16 << 20

// lastWords reads what the peer sent before a connection broke that we cannot write to any more: a Terminate tells why.
func (q *qp) lastWords() {
	for range drainMost / stagingSize / readsAPass {
		if q.fd < 0 {
			return
		}
		q.receive()
	}
}

// refusedRead is a Read or an Atomic of the peer that asks for what it may not have.
type refusedRead struct {
	number uint64
	atomic bool
	err    error
}

func (r *refusedRead) Error() string {
	what := "Read"
	if r.atomic {
		what = "Atomic"
	}
	return fmt.Sprintf("%s %d from the peer: %v", what, r.number, r.err)
}
func (r *refusedRead) Unwrap() error { return r.err }

// refuseRead ends the QP over a Read or an Atomic that may not be carried out; it completes in error at the peer, with the reason.
func (q *qp) refuseRead(a *answer, err error) {
	q.fail(&refusedRead{a.number, a.atomic, err}, transport.StatusFlushed)
}

// terminated takes a Terminate: the first error was on the other side.
func (q *qp) terminated() error {
	i := &q.in
	code := terminate(i.a)
	cause := transport.ErrProtocol
	status := transport.StatusRemoteOp
	switch code {
	case terminateAccess, terminateKey:
		cause, status = transport.ErrAccess, transport.StatusRemoteAccess
	case terminateLocal:
		cause = transport.ErrPeerLost
	case terminateNoRecv:
		status = transport.StatusRNR
	}
	err := fmt.Errorf("%w (%v: %q): %w", errTerminated, code, i.control, cause)
	if i.b != 0 {
		if w := q.reading(); w != nil && w.number == i.b-1 {
			w.failed = status
		}
	}
	if q.lanes != nil {
		q.lanes.refused(status)
	}
	q.fail(err, transport.StatusFlushed)
	return nil
}
