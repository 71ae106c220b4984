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

// failures is what an endpoint knows of ranks that have failed, and ends what depends on them.
//
// Invariants, under the lock: a peer fails once, and is in peers from then on, in the order of failures. Its
// connection is cut before any operation that names it is completed, so that nothing is placed in a buffer
// that the user has back.
type failures struct {
	e     *Engine
	peers []*peer // those that have failed
	// by communicator that is in use: its world ranks; nil for the whole world
	groups map[uint32][]int32
	noted  atomic.Bool // a peer has failed or a communicator was revoked: calls have to look

	logging sync.WaitGroup // goroutines that log: a handler may block, so it is never called under the lock
}

// onConnectionEnd takes the first completion that says that a peer's QP is no more.
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
	y.failPeer(p, cause)
}

// text tells of the ranks that have failed, one of which may be why others do what this rank does not expect.
func (y *failures) text() string {
	text := ""
	for _, p := range y.peers {
		text += fmt.Sprintf("; %v", p.cause)
	}
	return text
}

// failPeer gives a peer up: the connection is cut first, so that nothing is placed in any buffer any more,
// then every operation that names the peer fails.
func (y *failures) failPeer(p *peer, cause error) {
	// what came after our Close and wanted an answer
	if p.state == peerFailed || y.e.closing && errors.Is(cause, transport.ErrState) {
		return
	}
	wasOpen := p.state == peerOpen
	if wasOpen && errors.Is(cause, transport.ErrState) {
		cause = cmp.Or(p.ch.QP().Err(), cause) // why nothing can be posted says more than that
	}
	p.state = peerFailed
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
	// A receive from any source could wait for ever for the one that is gone: it fails too, and may be posted
	// again.
	for m := range y.e.matching.Posted() {
		if m.Source == int32(p.rank) || m.Source == AnySource && y.inContext(m.Context, p.rank) {
			y.e.matching.RemovePosted(m)
			y.e.Requests.complete(m.Value, p.cause)
		}
	}
	y.e.Choices.onPeerFailed(p)
	for _, c := range y.e.Collectives.inMailboxes {
		if err := c.mailboxes.failedLocked(); err != nil {
			y.e.Collectives.failLocked(c, err)
		}
	}
	y.e.waiting.wakeConditionsLocked() // probes look at the peer's state themselves
}

// OpenCommunicator begins the use of a communicator of these world ranks; nil for the whole world. Only their
// failure concerns its receives and probes from any source, and its collectives. It holds until
// ReleaseContext. The slice is not copied. It tells whether another rank has revoked the communicator
// already.
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

// since is the failure of a rank of the context among those after the first n failures; nil if there
// was none.
func (y *failures) since(n int, context uint32) error {
	for _, p := range y.peers[n:] {
		if y.inContext(context, p.rank) {
			return p.cause
		}
	}
	return nil
}

// unacknowledged is the failure of a rank of the context that keeps receives from any source from waiting:
// one that was not acknowledged, or any once all other ranks have failed. Nobody could answer then but this
// rank itself, which does not ask itself so.
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

// noLiveSource is why nobody will send what a receive asks for; nil if somebody may.
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
