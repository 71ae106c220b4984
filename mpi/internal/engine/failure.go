package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/transport"
)

// failures has the ranks that have failed, as far as an endpoint knows, and ends the operations that depend
// on them.
//
// Invariants, under the lock: a peer fails once, and is in peers from then on, in the order of failures. Its
// connection is cut before any operation that names it completes, so that nothing is placed in a buffer that
// the program may use again.
type failures struct {
	e     *Engine
	peers []*peer // those that have failed
	// by the first context of each communicator in use: its world ranks; nil for the whole world
	groups map[uint32][]int32
	noted  atomic.Bool // a peer has failed or a communicator was revoked: calls must check

	logging sync.WaitGroup // goroutines that log: a handler may block, so it is never called under the lock
}

// onConnectionEnd handles the first completion with an error of a peer's QP.
func (y *failures) onConnectionEnd(p *peer, wc *transport.WC) {
	cause := p.ch.QP().Err()
	if cause == nil {
		cause = wc.Err
	}
	if y.e.closing && (cause == nil || errors.Is(cause, transport.ErrClosed)) {
		p.state = peerClosed
		// Shutdown may sleep while another goroutine, or a timer, makes the pass
		y.e.waiting.wakeConditionsLocked()
		return
	}
	if cause == nil {
		cause = fmt.Errorf("%w: %v", transport.ErrPeerLost, wc.Status)
	}
	if p.ended = true; p.state == peerOpen { // the peer has sent these before its end
		y.e.Sends.takeFINsLocked(p.fabric)
		y.e.Recvs.takeArrivedLocked(p)
	}
	y.failPeer(p, cause)
}

// lastPasses is how many passes take what a peer has sent before its failure: enough for more than sockets
// usually hold. It is a limit because other peers may go on sending.
const lastPasses = 256

// takeLastLocked takes what a peer has sent before its failure, of which this endpoint has been told. No pass
// is under way.
func (y *failures) takeLastLocked(p *peer) {
	y.e.mu.assertHeld()
	for range lastPasses {
		if p.state != peerOpen || y.e.stopped != nil {
			return
		}
		y.e.progress.pass()
	}
}

// text lists the failures, for messages about other ranks' behavior that one of them may explain.
func (y *failures) text() string {
	text := ""
	for _, p := range y.peers {
		text += fmt.Sprintf("; %v", p.cause)
	}
	return text
}

// failPeer marks a peer as failed: it first cuts the connection, so that nothing more is placed in any
// buffer; then every operation that names the peer fails.
func (y *failures) failPeer(p *peer, cause error) {
	// a message after our Close that required an answer
	if p.state == peerFailed || y.e.closing && errors.Is(cause, transport.ErrState) {
		return
	}
	wasOpen := p.state == peerOpen
	if wasOpen && errors.Is(cause, transport.ErrState) {
		cause = cmp.Or(p.ch.QP().Err(), cause) // the QP's error is more specific
	}
	p.state = peerFailed
	y.e.connections.settledLocked(p)
	y.e.coalescer.recordRun(p)
	y.e.recorder.Note(recorder.PeerLost, 0, p.rank, 0, 0)
	y.e.recorder.Stamp()
	if y.e.stopped == nil {
		y.e.hub.failed.found(y.e, p.rank, cause)
	}
	y.peers = append(y.peers, p)
	p.cause = &PeerError{p.rank, cause}
	if wasOpen {
		p.ch.QP().Abort(cause)
	}
	y.failRequestsOf(p)
	y.e.Recovery.peerFailed(p)
}

func (y *failures) failRequestsOf(p *peer) {
	p.unrecorded = 0
	p.batch.Reset()
	y.e.coalescer.releaseBatch(p)
	for p.queued() {
		r := p.queue[p.head]
		p.dequeue()
		y.e.Requests.complete(r, p.cause)
	}
	if r := p.incoming.r; r != nil && !r.completed() {
		y.e.Requests.complete(r, p.cause) // the rest of its message will not come
	}
	p.incoming, p.announcedUnexpected = incoming{}, nil
	if p.ch != nil {
		byToken := func(token uint64) {
			if r := y.e.Requests.byToken(token); r != nil && !r.completed() {
				y.e.Requests.complete(r, p.cause)
			}
		}
		if err := errors.Join(p.fabric.sender.Fail(p.ch, byToken), p.fabric.receiver.Fail(p.ch, byToken),
			p.ch.Fail(p.cause)); err != nil {
			y.logging.Go(func() {
				y.e.log.Error("giving a peer's memory back", "peer", p.rank, "error", err)
			})
		}
	}
	y.e.Windows.onPeerFailed(p)
	// A receive from any source could wait forever for the failed rank: it fails too, and may be posted
	// again.
	for m := range y.e.matching.Posted() {
		if m.Source == int32(p.rank) || m.Source == AnySource && y.inContext(m.Context, p.rank) {
			y.e.matching.RemovePosted(m)
			y.e.Requests.complete(m.Value, p.cause)
		}
	}
	y.e.Choices.onPeerFailed(p)
	for _, c := range y.e.MailboxCalls.waiting {
		if err := c.mailboxes.failedLocked(); err != nil {
			y.e.Collectives.failLocked(c, err)
		}
	}
	y.e.waiting.wakeConditionsLocked() // they look at the peer's state themselves
}

// OpenCommunicator begins the use of a communicator, named by its first context, of these world ranks; nil
// for the whole world. Only their failure concerns its receives and probes from any source, and its
// collectives, until ReleaseContext. The slice is not copied. It reports whether another rank has already
// revoked the communicator.
func (v *Recovery) OpenCommunicator(communicator uint32, ranks []int32) (revoked bool) {
	e := v.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures.groups[communicator] = ranks
	v.open(communicator)
	return v.revoked[communicator]
}

func (y *failures) inContext(context uint32, rank int) bool {
	ranks := y.groups[contextid.Communicator(context)]
	return ranks == nil || slices.Contains(ranks, int32(rank))
}

// since returns the first failure of a rank of the context after the first n failures, or nil.
func (y *failures) since(n int, context uint32) error {
	for _, p := range y.peers[n:] {
		if y.inContext(context, p.rank) {
			return p.cause
		}
	}
	return nil
}

// unacknowledged returns the failure that makes a receive from AnySource fail instead of waiting: an
// unacknowledged one, or any failure if no other rank of the communicator is alive.
func (y *failures) unacknowledged(context uint32) error {
	if len(y.peers) == 0 {
		return nil
	}
	if err := y.since(y.e.Recovery.acknowledged[contextid.Communicator(context)], context); err != nil {
		return err
	}
	left := y.e.size
	if ranks := y.groups[contextid.Communicator(context)]; ranks != nil {
		left = len(ranks)
	}
	for _, p := range y.peers {
		if y.inContext(context, p.rank) {
			left--
		}
	}
	if left > 1 {
		return nil
	}
	return y.since(0, context)
}

// noLiveSource returns why no rank will send the message of a receive; nil if one may.
func (y *failures) noLiveSource(context uint32, src int) error {
	if err := y.e.Recovery.revokedErr(context); err != nil {
		return err
	}
	if src == AnySource {
		return y.unacknowledged(context)
	}
	if p := y.e.peers[src]; p != nil && p.state == peerFailed {
		return p.cause
	}
	return nil
}
