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

// unexpectedMessage is a message that arrived before its receive was posted: its bytes, or where they can be
// fetched, in the order of the message.
type unexpectedMessage struct {
	match        match.Message[*unexpectedMessage]
	bytes        int
	parts        []part
	incomplete   bool     // part of it has not arrived yet
	peer         *peer    // its sender
	self         *request // a send of this rank to itself that waits for its receive
	announcement uint64   // the id of its first announcement, plus one; 0 for none
	probedIndex  int      // index in Probes.messages, plus one; 0 if not there
	gen          uint32   // incremented with every use, so that a stale Message finds nothing
	fetch        *request // fetches the bytes of a message that a Message holds
	recv         *request // the receive of the Message, which waits for fetch
	fetchErr     error    // why fetch failed
	next         *unexpectedMessage
}

// part is a range of bytes of an unexpected message.
type part struct {
	payload   []byte // a copy, from the pool
	source    rendezvous.Source
	announced bool // the bytes are at the source
}

// local reports whether all bytes of the message are here.
func (a *unexpectedMessage) local() bool {
	for i := range a.parts {
		if a.parts[i].announced {
			return false
		}
	}
	return !a.incomplete
}

// unexpectedPool has free unexpected messages, and free payload buffers by powers of two of size.
type unexpectedPool struct {
	free    *unexpectedMessage
	buffers [maxClass + 1][][]byte
}

const (
	minClass = 6  // 64 bytes
	maxClass = 18 // longer buffers are left to the garbage collector
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

// copyOf returns a copy of b, which is not empty.
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

// release returns the payload of an unexpected message to the pool.
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

// unexpectedMessages stores the messages that no receive has matched. The matching table has them in order;
// this owns their memory and bounds it.
//
// Invariants, under the lock: bytes is the payload stored, count the number of messages of peers, including
// those that matched probes have taken. When bytes exceeds maxBytes, peers that send payload are paused: told
// to announce payload instead of sending it. When half of maxBytes is free, they are told to go on.
type unexpectedMessages struct {
	e        *Engine
	pool     unexpectedPool
	count    int
	maxCount int
	bytes    int
	maxBytes int
	paused   []*peer

	freedContexts contextSet // their messages are dropped once they are abandoned
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

// storePayload stores bytes of a message that no receive has matched. If that exceeds the bound, it pauses
// the peer.
func (u *unexpectedMessages) storePayload(a *unexpectedMessage, b []byte) {
	a.parts = append(a.parts, part{payload: u.pool.copyOf(b)})
	u.bytes += len(b)
	if p := a.peer; u.bytes > u.maxBytes && p != nil && p.ch != nil && !p.payloadPaused {
		p.payloadPaused, p.bytesWhilePaused = true, 0
		p.ch.RefusePayload(true)
		u.paused = append(u.paused, p)
		u.e.stats.Holds++
	}
}

// storeSent stores the bytes of a send of this rank to itself.
func (u *unexpectedMessages) storeSent(a *unexpectedMessage, r *request) {
	for b := range u.e.views.pieces(r) {
		if len(b) > 0 {
			u.storePayload(a, b)
		}
	}
}

// newMessage returns an unexpected message for a peer. It returns an error if the limit on their number is
// reached and the peer has sent more than its share.
func (u *unexpectedMessages) newMessage(p *peer) (*unexpectedMessage, error) {
	if u.count >= u.maxCount && p.unexpectedCount >= u.maxCount/u.e.size {
		return nil, fmt.Errorf("%w: it has sent %d messages that no receive has matched, and this rank "+
			"stores %d at most (%s)", ErrLimit, p.unexpectedCount, u.maxCount, setting.UnexpectedCount.Name)
	}
	a := u.pool.get()
	a.peer = p
	u.count++
	p.unexpectedCount++
	return a, nil
}

// admitPayload returns an error if a paused peer sends payload for which there is no receive. A batch that
// the peer had filled before it read the order to pause is allowed.
func (p *peer) admitPayload(n int) error {
	if p.ch == nil || !p.ch.PeerKnowsRefusal() {
		return nil
	}
	if p.bytesWhilePaused += n; p.bytesWhilePaused > eager.BatchSize {
		return fmt.Errorf("%w: it sends payload for which there is no memory, after it has read that it "+
			"is to announce it", transport.ErrProtocol)
	}
	return nil
}

// enqueue stores an unexpected message until a receive matches it, and wakes probes.
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

// releaseParts frees the bytes of a message that are here.
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

// release frees an unexpected message that was taken or dropped.
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
