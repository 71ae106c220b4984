package shm

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// serve accepts connections until the endpoint is closed. Processes of other users are closed at once.
func (e *endpoint) serve() {
	over := e.table.Context().Done()
	for {
		made, err := e.listener.AcceptUnix()
		if err != nil {
			if e.table.Context().Err() != nil {
				return
			}
			e.report("", fmt.Errorf("accepting connections: %w", err))
			select { // most likely out of descriptors, which passes
			case <-time.After(100 * time.Millisecond):
				continue
			case <-over:
				return
			}
		}
		c := &conn{UnixConn: made}
		if err := c.identify(); err != nil {
			made.Close()
			e.report(fmt.Sprintf("process %d", c.pid), err)
			continue
		}
		select { // later callers wait in the system's queue
		case e.callers <- struct{}{}:
		case <-over:
			made.Close()
			return
		}
		e.table.Go(func() { e.answer(c) })
	}
}

// report reports a failed connection to the acceptor, unless there were too many.
func (e *endpoint) report(from string, err error) {
	e.reports.Report(e.acceptor, from, err)
}

// answer runs a caller's handshake to its end.
func (e *endpoint) answer(c *conn) {
	defer c.Close()
	who, err := e.hello(c)
	<-e.callers
	from := fmt.Sprintf("process %d", c.pid)
	if err == nil {
		from = fmt.Sprintf("rank %d, %s", transport.RankOf(who.initiator), from)
		err = e.respond(c, &who)
		if errors.Is(err, cm.ErrCollision) {
			return
		}
	}
	if err != nil && e.table.Context().Err() == nil {
		e.report(from, lost(err))
	}
}

// hello reads the first message and checks the ranks of both ends.
func (e *endpoint) hello(c *conn) (parties, error) {
	defer c.within(e.table.Context(), e.dev.opts.AuthTimeout)()
	body, _, err := c.receive(typeHello, 0)
	if errors.Is(err, os.ErrDeadlineExceeded) && e.table.Context().Err() == nil {
		// A rank that was too slow tries again when it is told so. The message is small enough for an empty
		// socket, so this does not block.
		c.SetDeadline(time.Now().Add(provenTimeout))
		c.reject(handshake.RejectBusy, "too slow: try again")
	}
	if err != nil {
		return parties{}, c.turnDown(err)
	}
	who, proof := parseHello(body)
	switch {
	case who.job != handshake.JobHash(e.id.Job):
		c.reject(handshake.RejectOther, "this is another job")
		return who, fmt.Errorf("%w: the peer belongs to another job", transport.ErrRefused)
	case !e.id.Meets(who.initiator, who.responder):
		c.reject(handshake.RejectRank, handshake.Whom(&e.id))
		return who, fmt.Errorf("%w: the peer says that it is %s and asks for %s", transport.ErrRefused,
			handshake.Name(who.initiator), handshake.Name(who.responder))
	}
	if err := who.check(proof, &e.id.Secret, roleInitiator, []byte(e.socket)); err != nil {
		return who, c.turnDown(err)
	}
	who.nonces[1] = handshake.NewNonce()
	return who, nil
}

// respond is the responder's side of the handshake with an authenticated peer, unless another connection
// exists or is made first.
func (e *endpoint) respond(c *conn, who *parties) error {
	p, ok := e.table.Request(who.responder, who.initiator)
	if !ok {
		c.reject(handshake.RejectCollision, "another connection between the two stays")
		return cm.ErrCollision
	}
	defer c.within(e.table.Context(), provenTimeout)()
	p.Callbacks.Lock()
	defer p.Callbacks.Unlock()
	q, err := e.join(c, who)
	e.table.Accepted(p, q)
	return err
}

// join makes the connection.
func (e *endpoint) join(c *conn, who *parties) (*qp, error) {
	mine, private, err := e.prepare(who.initiator)
	if err != nil {
		c.reject(handshake.RejectOther, err.Error())
		return nil, err
	}
	theirs, f, private, err := e.exchange(c, who, mine, private)
	if err != nil {
		e.dev.drop(mine, nil) // the peer uses it from Ready on
		return nil, err
	}
	if _, err := c.Write(appendPrefix(nil, typeReady)); err != nil {
		f.close()
		e.dev.drop(mine, nil)
		return nil, err
	}
	return e.connected(c.pid, who.initiator, mine, theirs, f, private), nil
}

// exchange sends the initiator this end's parameters, and receives its own.
func (e *endpoint) exchange(c *conn, who *parties, mine *prepared, private []byte) (*connectInfo,
	*peerMapping, []byte, error) {
	err := c.send(e.table.Context(), who.appendAccept(nil, &e.id.Secret, e.dev.offer(mine), private),
		e.dev.arena.fd)
	if err != nil {
		return nil, nil, nil, err
	}
	body, fds, err := c.receive(typeOffer, 1)
	if err != nil {
		return nil, nil, nil, c.turnDown(err)
	}
	theirs, private, err := who.takeOffer(body, &e.id.Secret)
	if err != nil {
		closeAll(fds)
		return nil, nil, nil, c.turnDown(err)
	}
	f, err := e.dev.accept(theirs, fds, c.pid)
	if err != nil {
		return nil, nil, nil, c.turnDown(err)
	}
	return theirs, f, private, nil
}
