package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// peerState is the state of the connection to another rank.
type peerState uint8

const (
	peerIdle peerState = iota // no connection yet; left by connectLocked, the peer's connection or failure
	// a connect is under way and sends wait in the queue; left by Connected or by failure
	peerConnecting
	peerOpen   // the channel is open; left by close or failure
	peerClosed // closed gracefully by Shutdown; left only by failure, as when the engine stops
	peerFailed // final: every operation that names the peer fails with cause
)

// peer is an engine's state for another rank. The engine's lock guards it.
type peer struct {
	rank  int
	state peerState
	// counted in connections.underWay
	connecting bool
	// messages that went without a connection, to the peer and from it
	unconnected struct{ sent, received uint64 }
	// length above which a message from one contiguous buffer goes by rendezvous; 0 before the peer is open
	eagerLimit int
	// length up to which a blocking send uses a slot even if the receiver is probably waiting
	shortLimit int
	// messages that were announced because the receiver seemed to wait, and did not
	unawaited backoff
	fabric    *fabric // nil until either side has begun the connection
	ch        *channel.Channel
	ended     bool  // its connection has ended: nothing can be sent
	cause     error // in peerFailed: why
	// Hub.PeerFailed was called for it
	failureReported bool

	// sends that wait for a connection or for credits, in the order of their posting, from head on
	queue    []*request
	head     int
	deferred bool // listed in progressEngine.deferred
	// unexpected messages by the id of their first announcement
	announcedUnexpected map[uint64]*unexpectedMessage
	batch               eager.Batch
	unrecorded          int // messages at the end of the batch, in its last run, that recordRun has to record
	burst               burstStats
	incoming            incoming
	controls            []control          // control messages that wait for a connection or for room
	earlyMessages       int                // its messages of agreements that must wait here
	earlyRevokes        int                // its REVOKEs of unknown communicators that are stored
	unexpectedCount     int                // unexpected messages from the peer
	bytesWhilePaused    int                // payload that it sent after it had read the order to pause
	payloadPaused       bool               // the peer was told to announce payload instead of sending it
	polled              bool               // this rank polls its ring: no device reports arrivals
	qpPoller            transport.QPPoller // its queue pair, if that can be polled by itself
	outbox              outbox             // messages of windows to send
	windowParts         []byte             // PARTs of the message of windows that is arriving
	oneSided            int                // operations posted on its memory in windows
	stats               protocols
	copies              peerCopies
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

// enqueue makes a send wait for its peer.
func (p *peer) enqueue(r *request) { p.queue = append(p.queue, r) }

func (p *peer) queued() bool { return p.head < len(p.queue) }

// sendPending reports whether earlier messages to the peer are unsent.
func (p *peer) sendPending() bool { return p.batch.Count() > 0 || p.queued() }

func (p *peer) dequeue() {
	p.queue[p.head] = nil
	p.head++
	if p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
	}
}
