package engine

import (
	"fmt"
	"math/bits"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/mpi/internal/match"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

type envelope = eager.Envelope

// unexpectedMessage is a message that came before its receive was posted: its bytes, or where they can be
// had, in the order of the message.
type unexpectedMessage struct {
	match        match.Message[*unexpectedMessage]
	bytes        int
	parts        []part
	incomplete   bool     // not all of it has come yet
	peer         *peer    // where it came from
	self         *request // a send of this rank to itself that waits for its receive
	announcement uint64   // the id of its first announcement, plus one; 0 while it has none
	probedIndex  int      // in Engine.matched, plus one: held by a Message; 0 when not there
	gen          uint32   // steps with every use, so that a Message of an earlier one finds nothing
	fetch        *request // brings the bytes of a message here that a Message holds
	recv         *request // the receive of the Message, which waits for fetch
	fetchErr     error    // why fetch failed
	next         *unexpectedMessage
}

// part is a stretch of an unexpected message.
type part struct {
	payload   []byte // a copy, from the pool
	source    rendezvous.Source
	announced bool // the bytes are at the source
}

// local tells whether all of the message is here.
func (a *unexpectedMessage) local() bool {
	for i := range a.parts {
		if a.parts[i].announced {
			return false
		}
	}
	return !a.incomplete
}

// unexpectedPool keeps unexpected messages and their payload buffers, by powers of two of size.
type unexpectedPool struct {
	free    *unexpectedMessage
	buffers [maxClass + 1][][]byte
}

const (
	minClass = 6  // 64 bytes
	maxClass = 18 // beyond that a buffer is left to the garbage collector
)

func class(n int) int { return max(minClass, bits.Len(uint(n-1))) }

func (p *unexpectedPool) get() *unexpectedMessage {
	a := p.free
	if a == nil {
		a = &unexpectedMessage{}
		a.match.Value = a
		return a
	}
	p.free, a.next = a.next, nil
	return a
}

// copyOf copies b, which is not empty.
func (p *unexpectedPool) copyOf(b []byte) []byte {
	c := class(len(b))
	if c > maxClass {
		return append([]byte(nil), b...)
	}
	var buf []byte
	if n := len(p.buffers[c]); n > 0 {
		buf = p.buffers[c][n-1]
		p.buffers[c] = p.buffers[c][:n-1]
	} else {
		buf = make([]byte, 1<<c)
	}
	return buf[:copy(buf[:len(b)], b)]
}

// release gives the payload of an unexpected message back.
func (p *unexpectedPool) release(a *unexpectedMessage) {
	for i := range a.parts {
		if n := cap(a.parts[i].payload); n > 0 {
			if c := bits.Len(uint(n - 1)); n == 1<<c && c >= minClass && c <= maxClass {
				p.buffers[c] = append(p.buffers[c], a.parts[i].payload[:0])
			}
		}
		a.parts[i] = part{}
	}
	a.parts = a.parts[:0]
}

func (p *unexpectedPool) put(a *unexpectedMessage) {
	a.incomplete, a.peer, a.self = false, nil, nil
	a.fetch, a.recv, a.fetchErr = nil, nil, nil
	a.gen++
	a.next, p.free = p.free, a
}

// unexpectedMessages keeps the messages that no receive has matched. The matching table has them in order;
// this owns their memory and bounds it.
//
// Invariants, under the lock: bytes is the payload that is kept, count the messages of peers, those that a
// matched probe has taken among them. While bytes exceeds maxBytes the peers in paused have been told to
// announce payload instead of sending it, and are told otherwise when half of it is free.
type unexpectedMessages struct {
	e        *Engine
	pool     unexpectedPool
	count    int
	maxCount int
	bytes    int
	maxBytes int
	paused   []*peer

	freedContexts contextSet // messages in these are dropped, once they are abandoned
	// messages dropped since Drain; nil before
	unfinished map[UnfinishedKey]int
	unreceived func(context uint32, source, tag int, head []byte) // see Config
}

func (u *unexpectedMessages) init(e *Engine, c Config) {
	*u = unexpectedMessages{e: e, maxCount: c.MaxUnexpectedCount, maxBytes: c.MaxUnexpectedBytes,
		unreceived:    c.Unreceived,
		freedContexts: contextSet{}}
	if u.maxBytes == 0 {
		u.maxBytes = 64 << 20
	}
	if u.maxCount == 0 {
		u.maxCount = DefaultMaxUnexpectedCount
	}
}

// storePayload copies bytes of a message that no receive has matched. The memory for such bytes is bounded:
// beyond the bound the peer is told to announce payload and to keep it.
func (u *unexpectedMessages) storePayload(a *unexpectedMessage, b []byte) {
	a.parts = append(a.parts, part{payload: u.pool.copyOf(b)})
	u.bytes += len(b)
	if p := a.peer; u.bytes > u.maxBytes && p != nil && !p.payloadPaused {
		p.payloadPaused, p.bytesWhilePaused = true, 0
		p.ch.RefusePayload(true)
		u.paused = append(u.paused, p)
		u.e.stats.Holds++
	}
}

// storeSent keeps what a send of this rank to itself has sent.
func (u *unexpectedMessages) storeSent(a *unexpectedMessage, r *request) {
	for b := range u.e.views.pieces(r) {
		if len(b) > 0 {
			u.storePayload(a, b)
		}
	}
}

// newMessage begins to keep a message of a peer that no receive has matched. The error is of a peer that
// has sent so many that it is at the limit, or that sends payload although it has read that it is to keep it.
func (u *unexpectedMessages) newMessage(p *peer) (*unexpectedMessage, error) {
	if u.count >= u.maxCount && p.unexpectedCount >= u.maxCount/u.e.size {
		return nil, fmt.Errorf("%w: it has sent %d messages that no receive has matched, and this rank "+
			"keeps %d at most (%s)", ErrLimit,
			p.unexpectedCount, u.maxCount, setting.UnexpectedCount.Name)
	}
	a := u.pool.get()
	a.peer = p
	u.count++
	p.unexpectedCount++
	return a, nil
}

// admitPayload looks whether a peer may send payload for which there is no receive. What it had gathered in a
// batch before it read that it is to keep its payload comes all the same.
func (p *peer) admitPayload(n int) error {
	if !p.ch.PeerKnowsRefusal() {
		return nil
	}
	if p.bytesWhilePaused += n; p.bytesWhilePaused > eager.BatchSize {
		return fmt.Errorf("%w: it sends payload for which there is no memory, after it has read that it "+
			"is to announce it", transport.ErrProtocol)
	}
	return nil
}

// enqueue keeps an unexpected message until a receive matches it. A probe that waits looks again.
func (u *unexpectedMessages) enqueue(a *unexpectedMessage, env envelope, source int) {
	u.e.stats.Unexpected++
	u.e.recorder.Note(recorder.Arrived, env.Context, source, int(env.Tag), a.bytes)
	a.match.Context, a.match.Source, a.match.Tag = env.Context, int32(source), env.Tag
	u.e.matching.AddUnexpected(&a.match)
	if u.e.Choices.decided != nil {
		u.e.hook.Tell(Event{Kind: EventArrived, Context: env.Context, Peer: source, Tag: int(env.Tag)})
	}
	if len(u.e.Collectives.active) > 0 {
		u.e.Collectives.checkUnexpectedLocked(env, source)
	}
	u.e.waiting.wakeConditionsLocked()
}

// releaseParts gives back what is here of a message.
func (u *unexpectedMessages) releaseParts(a *unexpectedMessage) {
	for i := range a.parts {
		u.bytes -= len(a.parts[i].payload)
	}
	if a.announcement != 0 {
		delete(a.peer.announcedUnexpected, a.announcement-1)
		a.announcement = 0
	}
	u.pool.release(a)
}

// release gives an unexpected message back that has been taken.
func (u *unexpectedMessages) release(a *unexpectedMessage) {
	u.releaseParts(a)
	if a.peer != nil {
		u.count--
		a.peer.unexpectedCount--
	}
	u.pool.put(a)
	if len(u.paused) > 0 && u.bytes <= u.maxBytes/2 {
		for _, p := range u.paused {
			p.payloadPaused = false
			p.ch.RefusePayload(false)
		}
		u.paused = u.paused[:0]
	}
}
