package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// peerState is where the connection to another rank is.
type peerState uint8

const (
	peerIdle peerState = iota // no traffic yet; left by the first send, or by the peer's connection
	// a connect is under way and sends wait in the queue; left by Connected or by its failure
	peerConnecting
	peerOpen   // the channel is open; left by close or failure
	peerClosed // closed in order at Shutdown; final
	peerFailed // lost; final: everything that names the peer fails with cause
)

// peer is what the engine knows of another rank.
type peer struct {
	rank  int
	state peerState
	// bytes of a message in one piece above which it goes by rendezvous; 0 before the peer is open
	eagerLimit int
	// bytes up to which a blocking send does not ask whether it is likely that the receiver waits
	shortLimit int
	unawaited  unawaited
	fabric     *fabric // nil until the connection is begun, from either side
	ch         *channel.Channel
	cause      error // of peerFailed
	// Engine.PeerFailed was called for it
	failureReported bool

	// sends that wait for a connection or for credits, in the order of their posting
	queue    []*request
	head     int  // of queue
	deferred bool // is in progressEngine.deferred
	// unexpected messages by the id of their first announcement
	announcedUnexpected map[uint64]*unexpectedMessage
	batch               eager.Batch
	unrecorded          int // messages at the end of the batch, all of its last run: see recordRun
	burst               burstStats
	incoming            incoming
	controls            []control          // that wait for a connection or for room
	earlySteps          int                // of agreements, that it has sent and this rank has not taken yet
	earlyRevokes        int                // of communicators that this rank did not know
	unexpectedCount     int                // messages of it that no receive has taken
	bytesWhilePaused    int                // bytes that it sent after it had read the order to pause
	payloadPaused       bool               // has been told to announce payload
	polled              bool               // its ring is looked into: nobody tells what is placed there
	qpPoller            transport.QPPoller // its queue pair, if that can be polled alone
	outbox              outbox             // of windows
	windowParts         []byte             // PARTs of the message of windows that comes
	oneSided            int                // operations on its windows that are posted
	stats               protocols
}

func (e *Engine) peerLocked(rank int) *peer {
	e.mu.assertHeld()
	if p := e.peers[rank]; p != nil {
		return p
	}
	p := &peer{rank: rank}
	e.peers[rank] = p
	return p
}

// enqueue lets a send wait for its peer.
func (p *peer) enqueue(r *request) { p.queue = append(p.queue, r) }

func (p *peer) queued() bool { return p.head < len(p.queue) }

// sendPending tells whether something is to go before what comes now.
func (p *peer) sendPending() bool { return p.batch.Count() > 0 || p.queued() }

func (p *peer) dequeue() {
	p.queue[p.head] = nil
	p.head++
	if p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	}
}
