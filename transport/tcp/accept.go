package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/admission"
)

// serve accepts connections until the endpoint is closed.
func (e *endpoint) serve(l net.Listener) {
	for e.waitForSlot() {
		conn, err := l.Accept()
		if err != nil {
			if e.table.Context().Err() != nil {
				return
			}
			e.dev.opts.Log.Error("accepting connections", "address", e.addr, "error", err)
			select { // out of descriptors, most likely: it passes
			case <-time.After(100 * time.Millisecond):
				continue
			case <-e.table.Context().Done():
				return
			}
		}
		s := newStream(conn)
		s.joins = e.dev.opts.keeps()
		who := e.enter(s)
		e.table.Go(func() {
			defer conn.Close()
			rank, err := e.respond(s, who)
			proven := rank >= 0
			benign := proven && (errors.Is(err, cm.ErrCollision) || errors.Is(err, handshake.ErrGone))
			if err != nil && !benign && e.table.Context().Err() == nil {
				e.report(conn.RemoteAddr().String(), rank, err)
			}
		})
	}
}

// report tells the acceptor of somebody who was turned away: of each rank that has proved who it is, but only
// of some of the others, since everybody can call.
func (e *endpoint) report(from string, rank int, err error) {
	if rank >= 0 {
		e.acceptor.Refused(fmt.Sprintf("rank %d at %s", rank, from), err)
		return
	}
	e.reports.Report(e.acceptor, from, err)
}

// waitForSlot waits until a newcomer could be taken in. It tells whether the endpoint is open still.
func (e *endpoint) waitForSlot() bool {
	for {
		e.mu.Lock()
		wait := e.admission.Wait(time.Now())
		e.mu.Unlock()
		if wait == 0 {
			return e.table.Context().Err() == nil
		}
		select {
		case <-e.left:
		case <-time.After(wait):
		case <-e.table.Context().Done():
			return false
		}
	}
}

// enter admits an unauthenticated connection, and cuts the one that is evicted for it.
func (e *endpoint) enter(s *stream) *admission.Conn {
	host, _, _ := net.SplitHostPort(s.RemoteAddr().String())
	who := &admission.Conn{Address: host}
	now := time.Now()
	s.socket.SetDeadline(now.Add(e.dev.opts.AuthTimeout))
	e.mu.Lock()
	defer e.mu.Unlock()
	if out := e.admission.Enter(who, now); out != nil {
		e.pending[out].socket.SetDeadline(time.Unix(1, 0))
		delete(e.pending, out)
	}
	e.pending[who] = s
	return who
}

// leave notes that a peer has proved who it is, or has gone. After that it is not evicted.
func (e *endpoint) leave(who *admission.Conn) {
	e.mu.Lock()
	e.admission.Leave(who)
	delete(e.pending, who)
	e.mu.Unlock()
	select {
	case e.left <- struct{}{}:
	default:
	}
}

// greeted notes that an unauthenticated peer has named this job.
func (e *endpoint) greeted(who *admission.Conn) {
	e.mu.Lock()
	who.Greeted = true
	e.mu.Unlock()
}

// respond is the responder's side of the handshake. The rank is the peer's once it has proved it, -1 before.
func (e *endpoint) respond(s *stream, who *admission.Conn) (rank int, err error) {
	stop := context.AfterFunc(e.table.Context(), func() { s.socket.SetDeadline(time.Unix(1, 0)) })
	p, theirs, private, err := e.prove(s, e.anyPeer, func() { e.greeted(who) })
	e.leave(who)
	stop()
	if err != nil {
		if e.table.Context().Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) &&
			(who.Evicted || who.Greeted) {
			// A rank that was too slow comes again when it is told so. The socket has room for so little:
			// this waits for nothing.
			s.socket.SetDeadline(time.Now().Add(provenTimeout))
			s.reject(handshake.RejectBusy, "too slow, or too many unauthenticated connections: try again")
		}
		if who.Evicted {
			return -1, fmt.Errorf("%w: it has not proved who it is, and others came when %d such "+
				"connections were open",
				transport.ErrRefused, admission.MaxConns)
		}
		return -1, vanished(err)
	}
	defer s.until(e.table.Context(), provenTimeout)()
	if p.lane != 0 {
		return int(p.initiator), vanished(e.acceptLane(s, &p, private))
	}
	return int(p.initiator), vanished(e.accept(s, &p, theirs, private))
}

// maxUnauthenticatedBytes is the most that is read of who has not proved who he is: a Hello, which is checked
// before more is read, and a Proof, or a Reject in its place.
const maxUnauthenticatedBytes = helloSize + prefixSize + 1 + handshake.MaxText

// prove has a peer prove who it is: one that may call. greeted is called when it has named this job, in its
// Hello and before that in its ClientHello.
func (e *endpoint) prove(s *stream, may func(initiator uint32) bool, greeted func()) (p parties,
	theirs parameters, private []byte, err error) {
	if e.certs != nil {
		if err := s.expectEncrypted(e.certs, greeted); err != nil {
			return p, theirs, nil, err
		}
	}
	if p, err = e.hello(s, may); err != nil {
		return p, theirs, nil, err
	}
	greeted()
	p.nonces[1] = handshake.NewNonce()
	if _, err := s.Write(p.appendChallenge(nil, &e.id.Secret)); err != nil {
		return p, theirs, nil, err
	}
	body, err := expect(s, typeProof)
	if err == nil {
		err = p.takeProof(body, &e.id.Secret)
	}
	if err == nil { // from here on the bytes are those of a rank of this job
		body, err = expect(s, typeRequest)
	}
	if err == nil {
		theirs, private, err = p.takeRequest(body, &e.id.Secret)
	}
	if err != nil {
		return p, theirs, nil, s.turnDown(err)
	}
	return p, theirs, private, nil
}

// anyPeer tells whether a rank is another one of the job.
func (e *endpoint) anyPeer(rank uint32) bool { return rank != e.id.Rank && rank < e.id.Size }

// hello reads the first message and checks who calls whom.
func (e *endpoint) hello(s *stream, may func(initiator uint32) bool) (parties, error) {
	raw, err := s.first()
	if err != nil {
		return parties{}, err
	}
	p, err := parseHello(raw)
	switch {
	case errors.Is(err, transport.ErrVersion):
		s.reject(handshake.RejectVersion, fmt.Sprintf("this is version %d", handshakeVersion))
	case err != nil:
	case p.job != handshake.JobHash(e.id.Job):
		err = fmt.Errorf("%w: it is of another job", transport.ErrRefused)
		s.reject(handshake.RejectOther, "this is another job")
	case s.proven >= 0 && int64(p.initiator) != s.proven:
		err = fmt.Errorf("%w: it says that it is rank %d, and its certificate that it is rank %d",
			transport.ErrAuth, p.initiator, s.proven)
		s.reject(handshake.RejectAuth, fmt.Sprintf("your certificate is of rank %d", s.proven))
	case p.responder != e.id.Rank || !may(p.initiator) || p.lane != 0 && !s.joins:
		err = fmt.Errorf("%w: it says that it is rank %d and wants rank %d, lane %d", transport.ErrRefused,
			p.initiator, p.responder, p.lane)
		s.reject(handshake.RejectRank, fmt.Sprintf("this is rank %d of %d", e.id.Rank, e.id.Size))
	}
	return p, err
}

// accept makes the connection of a proven peer, unless another one stands or comes first.
func (e *endpoint) accept(s *stream, p *parties, theirs parameters, private []byte) error {
	rank := p.initiator
	peer, ok := e.table.Request(e.id.Rank, rank)
	if !ok {
		s.reject(handshake.RejectCollision, "another connection between the two stays")
		return cm.ErrCollision
	}
	peer.Callbacks.Lock()
	defer peer.Callbacks.Unlock()
	q, err := func() (*qp, error) {
		conf, ours, err := e.prepare(rank)
		if err != nil {
			s.reject(handshake.RejectOther, err.Error())
			return nil, err
		}
		mine := e.parameters(conf, s)
		if _, err := s.Write(p.appendAccept(nil, &e.id.Secret, mine, ours)); err != nil {
			return nil, err
		}
		return e.connected(s, p, conf, private, false, mine.negotiate(theirs))
	}()
	e.table.Accepted(peer, q)
	return err
}
