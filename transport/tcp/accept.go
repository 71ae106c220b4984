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
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
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
			select { // most likely out of descriptors, which passes
			case <-time.After(100 * time.Millisecond):
				continue
			case <-e.table.Context().Done():
				return
			}
		}
		h := setup.New(&e.local, conn)
		place := e.enter(h)
		e.table.Go(func() {
			defer conn.Close()
			rank, err := e.respond(h, place)
			proven := rank >= 0
			benign := proven && (errors.Is(err, cm.ErrCollision) || errors.Is(err, handshake.ErrGone))
			if err != nil && !benign && e.table.Context().Err() == nil {
				e.report(conn.RemoteAddr().String(), rank, err)
			}
		})
	}
}

// report reports a refused connection to the acceptor: every one of a rank that has authenticated itself, but
// only some of the others, since anybody can connect.
func (e *endpoint) report(from string, rank int, err error) {
	if rank >= 0 {
		e.acceptor.Refused(fmt.Sprintf("rank %d at %s", rank, from), err)
		return
	}
	e.reports.Report(e.acceptor, from, err)
}

// waitForSlot waits until a newcomer can be admitted. It reports whether the endpoint is still open.
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

// enter admits an unauthenticated connection, and cuts the one that is evicted for it. That may be the new
// connection itself, which respond then refuses.
func (e *endpoint) enter(h *setup.Handshake) *admission.Conn {
	host, _, _ := net.SplitHostPort(h.RemoteAddr().String())
	place := &admission.Conn{Address: host}
	now := time.Now()
	h.SetDeadline(now.Add(e.dev.opts.AuthTimeout))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending[place] = h
	if out := e.admission.Enter(place, now); out != nil {
		e.pending[out].Interrupt()
		delete(e.pending, out)
	}
	return place
}

// leave notes that a peer has authenticated itself, or has gone. After that it is not evicted.
func (e *endpoint) leave(place *admission.Conn) {
	e.mu.Lock()
	e.admission.Leave(place)
	delete(e.pending, place)
	e.mu.Unlock()
	select {
	case e.left <- struct{}{}:
	default:
	}
}

// greeted notes that the Hello or ClientHello of an unauthenticated peer has named this job.
func (e *endpoint) greeted(place *admission.Conn) {
	e.mu.Lock()
	place.Greeted = true
	e.mu.Unlock()
}

// respond is the responder's side of the handshake. rank is -1 until the peer has proved its identity.
func (e *endpoint) respond(h *setup.Handshake, place *admission.Conn) (rank int, err error) {
	stop := context.AfterFunc(e.table.Context(), h.Interrupt)
	theirs, private, err := h.Prove(e.mayConnect, func() { e.greeted(place) })
	e.leave(place)
	stop()
	if err != nil {
		if e.table.Context().Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) &&
			(place.Evicted || place.Greeted) {
			// A rank that was too slow tries again when it is told so. The message is small enough for an
			// empty socket, so this does not block.
			h.SetDeadline(time.Now().Add(provenTimeout))
			h.Reject(handshake.RejectBusy, "too slow, or too many unauthenticated connections: try again")
		}
		if place.Evicted {
			return -1, fmt.Errorf("%w: the peer did not authenticate in time, and others came when %d such "+
				"connections were open", transport.ErrRefused, admission.MaxConns)
		}
		return -1, handshake.Vanished(err)
	}
	defer h.Until(e.table.Context(), provenTimeout)()
	if h.Lane() != 0 {
		return int(transport.RankOf(h.Peer())), handshake.Vanished(e.acceptLane(h, private))
	}
	return int(transport.RankOf(h.Peer())), handshake.Vanished(e.accept(h, theirs, private))
}

// mayConnect reports whether a peer is another rank of the job, and may make this lane.
func (e *endpoint) mayConnect(peer uint32, lane uint16) bool {
	return e.local.ID.CheckPeer(peer) == nil && (lane == 0 || e.dev.opts.reconnects())
}

// accept makes the connection of an authenticated peer, unless another one exists or is made first.
func (e *endpoint) accept(h *setup.Handshake, theirs message.Parameters, private []byte) error {
	peer := h.Peer()
	p, ok := e.table.Request(e.local.ID.Facing(peer), peer)
	if !ok {
		h.Reject(handshake.RejectCollision, "another connection between the two stays")
		return cm.ErrCollision
	}
	p.Callbacks.Lock()
	defer p.Callbacks.Unlock()
	q, err := func() (*qp, error) {
		conf, ours, err := e.prepare(peer)
		if err != nil {
			h.Reject(handshake.RejectOther, err.Error())
			return nil, err
		}
		mine := e.offer(conf, h)
		if err := h.Accept(mine, ours); err != nil {
			return nil, err
		}
		return e.connected(h, conf, private, false, "", mine.Negotiate(theirs))
	}()
	e.table.Accepted(p, q)
	return err
}
