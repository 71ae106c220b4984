package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Fabric is one way to reach peers: a provider's device.
type Fabric struct {
	Device    transport.Device
	EagerMost int // bytes of a message in one piece above which it goes by rendezvous; 0 for what the largest slot carries
	Piece     int // bytes of a large message that one Read or Write moves; 0 for what the protocol finds best
}

// How often a waiting rank that shares its core lets the others have it, and looks again, before it sleeps. Where the others hand over what it
// waits for without the system's help, that is quicker than to be woken.
const (
	yieldsOfShared = 100
	yieldsOfOthers = 3
)

// Lookup gives the address of a peer's endpoint of a provider, "" if the peer has none of that. It may block.
type Lookup func(rank uint32, provider string) (string, error)

// fabric is what the engine has of a Fabric. A peer belongs to one of them from its connection on.
type fabric struct {
	name      string // of the provider
	device    transport.Device
	pd        transport.PD
	cq        transport.CQ
	endpoint  transport.Endpoint
	eagerMost int
	reads     int // of one QP under way at once

	announcer *rendezvous.Announcer
	fetcher   *rendezvous.Fetcher

	byQP     map[transport.QPN]*peer
	lastQP   transport.QPN // the QP that was looked up last, and its peer: most passes see one peer
	lastPeer *peer

	// Peers in whose rings the engine looks in every pass, where the device does not tell of what is placed.
	watched  []*peer
	watchMax int

	handler transport.HandlerID // 0: none
}

func (e *Engine) newFabric(c *Config, from Fabric) (*fabric, error) {
	attr := from.Device.Query()
	f := &fabric{
		name: attr.Provider, device: from.Device, eagerMost: cmp.Or(c.EagerMost, from.EagerMost, math.MaxInt), reads: min(readDepth, attr.MaxReads),
		byQP: map[transport.QPN]*peer{}, watchMax: attr.Watched,
	}
	var err error
	e.yields = max(e.yields, yieldsOfOthers)
	if attr.Watched > 0 {
		e.yields = yieldsOfShared
	}
	if f.pd, err = f.device.AllocPD(); err != nil {
		return nil, err
	}
	if len(c.HandlerCores) > 0 {
		if f.handler, err = e.startHandler(f.device, c.HandlerCores[0], min(c.SpinFor, handlerSpin)); err != nil {
			return nil, err
		}
	}
	if f.cq, err = f.device.CreateCQ(cqDepth, f.handler); err != nil {
		return nil, err
	}
	f.announcer = rendezvous.NewAnnouncer(f.pd, rendezvous.AnnouncerConfig{Piece: from.Piece})
	f.fetcher = rendezvous.NewFetcher(f.pd, rendezvous.FetcherConfig{Piece: from.Piece, Grant: c.Grant || f.reads == 0})
	return f, nil
}

// listen lets peers connect. It is called without the lock: a handler may want it.
func (e *Engine) listen(f *fabric, id transport.Identity) (err error) {
	e.mu.Lock() // an early peer's callback waits until the endpoint is known
	defer e.mu.Unlock()
	if e.handled() {
		if err := f.cq.RequestNotify(watched); err != nil {
			return err
		}
	}
	f.endpoint, err = f.device.Listen(id, &acceptor{e, f})
	return err
}

// Addr is the address to publish to the peers for a provider, "" if the engine has no fabric of that.
func (e *Engine) Addr(provider string) string {
	for _, f := range e.fabrics {
		if f.name == provider {
			return f.endpoint.Addr()
		}
	}
	return ""
}

// reach chooses the fabric to a peer: both sides come to the same, since they have the same order of preference and see the same addresses.
func (e *Engine) reach(rank int) (*fabric, string, error) {
	for _, f := range e.fabrics {
		addr, err := e.lookup(uint32(rank), f.name)
		if err != nil {
			return nil, "", err
		}
		r, asks := f.endpoint.(transport.Reacher)
		if addr != "" && (!asks || r.Reaches(addr)) {
			return f, addr, nil
		}
	}
	return nil, "", fmt.Errorf("%w: none of our fabrics reaches rank %d", transport.ErrInvalid, rank)
}

// opened notes a connected peer.
func (f *fabric) opened(p *peer) {
	f.byQP[p.ch.QP().Num()] = p
	f.lastPeer = nil
	if f.watchMax == 0 || f.handler != 0 {
		return
	}
	f.watched = append(f.watched, p)
	all := len(f.byQP) <= f.watchMax // else from now on the device tells
	for _, q := range f.watched {
		q.watched = all
	}
	if !all {
		f.watched = nil
	}
}

// peerOf gives the peer at the other end of a queue pair; nil if it has none any more.
func (f *fabric) peerOf(q transport.QPN) *peer {
	if q != f.lastQP || f.lastPeer == nil {
		f.lastQP, f.lastPeer = q, f.byQP[q]
	}
	return f.lastPeer
}

// quiet tells whether no large message is under way.
func (f *fabric) quiet() bool { return f.fetcher.Idle() && f.announcer.Idle() }

// wake ends a sleep in the completion queues.
func (e *Engine) wake() { e.fabrics[0].cq.Wake() }

// block sleeps until there may be something to do on any fabric, or wake is called. The lock is not held; all queues are armed.
func (e *Engine) block() error {
	first, others := e.fabrics[0], e.fabrics[1:]
	if len(others) == 0 {
		return first.cq.Wait(-1)
	}
	ended := make(chan error, len(others))
	for _, f := range others {
		go func() {
			err := f.cq.Wait(-1)
			first.cq.Wake()
			ended <- err
		}()
	}
	err := first.cq.Wait(-1)
	for _, f := range others {
		f.cq.Wake()
	}
	for range others {
		err = errors.Join(err, <-ended)
	}
	return err
}
