package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// router passes arrivals to the protocol that has registered for them: messages by their kind, completions by
// the top byte of their work request's id, immediates by their top bit. The channel's requests for a reply,
// which have no immediate, and the answers, with channel.ResentImm, it handles itself. Protocols register in
// Engine.init, before the first connection. Each kind has one protocol, and the tables do not change
// afterwards.
//
// A message of a kind without a protocol is a violation by the peer. A completion without a protocol is
// ignored: the owner of its request does not need it.
type router struct {
	e           *Engine
	messages    [256]func(p *peer, body []byte) error // by channel.Kind
	completions [256]func(p *peer, wc *transport.WC)  // by owner
	immediates  [2]func(p *peer, imm uint32)          // by class
}

// The top bit of an immediate other than channel.ResentImm is its class; the other 31 bits are the
// protocol's.
const (
	immediateFIN      = 0 // FIN: the peer has all bytes of an announcement of this rank
	immediateGrantEnd = 1 // the peer has written all bytes of a grant
)

// init registers the protocols except Recovery, which registers itself.
func (t *router) init(e *Engine) {
	t.e = e
	e.Recvs.register(t)
	e.Sends.register(t)
	e.Cancels.register(t)
	e.Windows.register(t)
}

// onMessage registers a handler for messages of a kind. The body is the handler's until it returns; its error
// fails the peer.
func (t *router) onMessage(k channel.Kind, h func(p *peer, body []byte) error) {
	if t.messages[k] != nil {
		panic(fmt.Sprintf("engine: two handlers for messages of kind %v", k))
	}
	t.messages[k] = h
}

// onCompletion registers a handler for successful completions of an owner's work requests.
func (t *router) onCompletion(owner uint8, h func(p *peer, wc *transport.WC)) {
	if t.completions[owner] != nil {
		panic(fmt.Sprintf("engine: two handlers for completions of owner %#x", owner))
	}
	t.completions[owner] = h
}

// onImmediate registers a handler for delivered immediates of a class.
func (t *router) onImmediate(class int, h func(p *peer, imm uint32)) {
	if t.immediates[class] != nil {
		panic(fmt.Sprintf("engine: two handlers for immediates of class %d", class))
	}
	t.immediates[class] = h
}

// message hands a message to its protocol.
func (t *router) message(p *peer, kind channel.Kind, body []byte) error {
	h := t.messages[kind]
	if h == nil {
		return fmt.Errorf("%w: message kind %v", transport.ErrProtocol, kind)
	}
	return h(p, body)
}

// completion hands one completion to the protocol that posted its request.
func (t *router) completion(f *fabric, wc *transport.WC) {
	p := f.peerOf(wc.QP)
	if p == nil || p.state == peerFailed {
		return // in flight when the peer failed
	}
	switch {
	case wc.Status != transport.StatusSuccess:
		t.e.failures.onConnectionEnd(p, wc)
	case wc.Op == transport.OpRecv && !wc.HasImm:
		t.onReplyAsked(p)
	case wc.Op == transport.OpRecv && wc.Imm == channel.ResentImm:
		t.onReplyResent(p)
	case wc.Op == transport.OpRecv && rendezvous.IsGrantEnd(wc.Imm):
		t.immediates[immediateGrantEnd](p, wc.Imm)
	case wc.Op == transport.OpRecv:
		t.immediates[immediateFIN](p, wc.Imm)
	default:
		if h := t.completions[uint8(wc.ID>>56)]; h != nil {
			h(p, wc)
		}
	}
}

// onReplyAsked answers a Send without an immediate: the peer asks again for the reply to its ring-resize
// request.
func (t *router) onReplyAsked(p *peer) {
	err := p.ch.RetransmitReply()
	if err == nil {
		err = p.ch.QP().PostRecv(&t.e.connections.emptyRecv)
	}
	if err != nil {
		t.e.failures.failPeer(p, err)
	}
}

// onReplyResent handles the peer's answer to such a Send of this rank: the reply to this rank's ring-resize
// request.
func (t *router) onReplyResent(p *peer) {
	err := p.ch.ReplyResent()
	if err == nil {
		err = p.ch.QP().PostRecv(&t.e.connections.emptyRecv)
	}
	t.e.progress.advanceOrFail(p, err)
}
