package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// dial begins a connection and brings it to RDMA mode.
func (e *endpoint) dial(ctx context.Context, p *cm.Peer[*qp], rank uint32, addr string) (*qp, error) {
	d := net.Dialer{LocalAddr: e.dev.opts.local(0)}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if isCut(err) { // the peer has reset it before this side has seen that it was made
		return nil, cutOff{vanished(err)}
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := newStream(conn)
	s.dialed = addr
	defer s.until(ctx, provenTimeout)()
	q, err := e.initiate(s, p, rank)
	if q == nil && isCut(err) {
		return nil, cutOff{vanished(err)}
	}
	return q, vanished(err)
}

// cutOff is the failure of an attempt whose connection the peer has ended before it has accepted it. The peer
// may live: a rank that gives the place of a caller to another one has not always the time to say so. If it
// does not live, nobody listens at the next attempt.
type cutOff struct{ error }

func (c cutOff) Unwrap() error        { return c.error }
func (c cutOff) Is(target error) bool { return target == cm.ErrBusy } // it is made again

// introduce is the initiator's side of the handshake up to the responder's proof.
func (e *endpoint) introduce(s *stream, rank uint32, lane uint16) (*parties, error) {
	p := &parties{job: handshake.JobHash(e.id.Job), initiator: e.id.Rank, responder: rank, lane: lane}
	p.nonces[0] = handshake.NewNonce()
	if e.certs != nil {
		if err := s.encrypt(e.certs, rank); err != nil {
			return nil, err
		}
	}
	if _, err := s.Write(p.appendHello(nil)); err != nil {
		if s.session != nil { // it may have ended because it did not like our certificate
			if _, why := expect(s, typeChallenge); errors.Is(why, transport.ErrRefused) {
				return nil, why
			}
		}
		return nil, err
	}
	body, err := expect(s, typeChallenge)
	if err != nil {
		return nil, s.turnDown(err)
	}
	if err := p.takeChallenge(body, &e.id.Secret); err != nil {
		return nil, s.turnDown(err)
	}
	return p, nil
}

func (e *endpoint) initiate(s *stream, peer *cm.Peer[*qp], rank uint32) (*qp, error) {
	p, err := e.introduce(s, rank, 0)
	if err != nil {
		return nil, err
	}
	if len(s.foreign) > 0 {
		return nil, s.turnDown(fmt.Errorf("%w: %d bytes that came before the handshake are the "+
			"application's: %.40q", transport.ErrNotWeft,
			len(s.foreign), s.foreign))
	}
	peer.Callbacks.Lock()
	defer peer.Callbacks.Unlock()
	conf, private, err := e.prepare(rank)
	if err != nil {
		s.reject(handshake.RejectOther, err.Error())
		return nil, err
	}
	mine := e.parameters(conf, s)
	if _, err := s.Write(p.appendRequest(p.appendProof(nil, &e.id.Secret), &e.id.Secret, mine,
		private)); err != nil {
		return nil, err
	}
	// While the answer is on its way the peer's own connection may be accepted here.
	peer.Callbacks.Unlock()
	body, err := expect(s, typeAccept)
	peer.Callbacks.Lock()
	if err != nil {
		return nil, err
	}
	theirs, private, err := p.takeAccept(body, &e.id.Secret)
	if err != nil {
		return nil, err
	}
	if !e.table.Commit(peer) {
		// the peer began another before it accepted ours; that one has been accepted here
		return nil, cm.ErrCollision
	}
	return e.connected(s, p, conf, private, true, mine.negotiate(theirs))
}
