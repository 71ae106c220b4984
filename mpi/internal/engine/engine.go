// Package engine moves one rank's messages: it owns the rank's device, channels, requests and matching, and makes the
// passes that drive them. It deals in bytes and world ranks; package mpi puts types and communicators on top.
//
// One lock guards everything. Whoever waits takes it by trying and makes passes (see wait.go); no goroutine or Go channel
// stands between a call and the device.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/mpi/internal/match"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Errors that callers tell apart; package mpi exports them under the same names.
var (
	ErrTruncate   = errors.New("message is longer than the receive buffer")
	ErrProcFailed = errors.New("process failed")
	ErrAborted    = errors.New("job aborted")
	ErrRequest    = errors.New("invalid request")
	ErrFinalized  = errors.New("Finalize has been called")
)

// Config is what an engine is made of.
type Config struct {
	Device         transport.Device
	Identity       transport.Identity
	Channel        channel.Config
	Lookup         func(rank uint32) (string, error) // address of a peer's endpoint; may block
	ConnectTimeout time.Duration
	SpinFor        time.Duration // how long a waiting rank polls before it sleeps
	Log            *slog.Logger
}

// Engine is the message engine of one rank. All methods may be called from any goroutine.
type Engine struct {
	mu sync.Mutex

	rank     int
	size     int
	log      *slog.Logger
	lookup   func(rank uint32) (string, error)
	dialFor  time.Duration
	spinFor  time.Duration
	chanConf channel.Config

	device   transport.Device
	pd       transport.PD
	cq       transport.CQ
	endpoint transport.Endpoint

	peers    []*peer // by world rank, nil until first use
	byQP     map[transport.QPN]*peer
	lastQP   transport.QPN // the QP that was looked up last, and its peer: most passes see one peer
	lastPeer *peer
	retry    []*peer // peers with work that only a later pass can do

	announcer *rendezvous.Announcer
	fetcher   *rendezvous.Fetcher

	table    match.Table[*request, *arrival]
	requests requestPool
	arrivals arrivalPool
	matched  []*arrival // held by a Message

	waiting waiting
	held    held

	dead    error // why the engine does no more work; nil while it does
	closing bool  // Shutdown has begun: peers that close are no failure

	dialing sync.WaitGroup // goroutines of connects
	stats   Stats

	finRoom transport.RecvWR // room for one FIN: no bytes
	wcs     [32]transport.WC
	qps     [32]transport.QPN
}

// Stats are the engine's counters, and what its channels have.
type Stats struct {
	Connections int    // open channels
	Registered  int    // bytes of their registered buffers
	EagerSent   uint64 // messages copied into a peer's ring
	Announced   uint64 // messages announced, to be read by their receiver
	Fetched     uint64 // announced messages read from a peer
	Unexpected  uint64 // messages that came before their receive
	HeadsNoTail uint64 // polls that found a message's head and not yet its tail
	Stalls      uint64 // sends that found no credit
	Passes      uint64 // rounds of polling
	Sleeps      uint64 // waits that went to sleep
}

const (
	sendDepth = 256
	recvSlack = 8 // posted Recvs beyond the announcements that can finish at once
	readDepth = 16
	cqDepth   = 1 << 16
)

// New makes the engine of one rank and starts listening. The device belongs to the engine from then on.
func New(c Config) (*Engine, error) {
	e := &Engine{
		rank: int(c.Identity.Rank), size: int(c.Identity.Size), log: c.Log, lookup: c.Lookup,
		dialFor: c.ConnectTimeout, spinFor: c.SpinFor, chanConf: c.Channel, device: c.Device,
		peers: make([]*peer, c.Identity.Size), byQP: map[transport.QPN]*peer{},
	}
	e.waiting.init(e)
	e.held.init(e)
	var err error
	if e.pd, err = c.Device.AllocPD(); err != nil {
		return nil, errors.Join(err, c.Device.Close())
	}
	if e.cq, err = c.Device.CreateCQ(cqDepth); err != nil {
		return nil, errors.Join(err, c.Device.Close())
	}
	e.announcer = rendezvous.NewAnnouncer(e.pd)
	e.fetcher = rendezvous.NewFetcher(e.pd, rendezvous.FetcherConfig{})
	e.mu.Lock() // an early peer's callback waits until the endpoint is known
	defer e.mu.Unlock()
	if e.endpoint, err = c.Device.Listen(c.Identity, (*acceptor)(e)); err != nil {
		return nil, errors.Join(err, c.Device.Close())
	}
	return e, nil
}

// Addr is the address to publish to the peers.
func (e *Engine) Addr() string { return e.endpoint.Addr() }

// Rank is the world rank of this engine.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks.
func (e *Engine) Size() int { return e.size }

// Stats returns the counters as they stand.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.stats
	for _, p := range e.peers {
		if p == nil || p.ch == nil {
			continue
		}
		c := p.ch.Stats()
		st.Registered += c.Registered
		st.HeadsNoTail += c.HeadsNoTail
		st.Stalls += c.Stalls
		if p.state == peerOpen {
			st.Connections++
		}
	}
	return st
}

// pass drives everything once, under the lock, and tells whether anything happened.
func (e *Engine) pass() bool {
	e.stats.Passes++
	e.held.flushed()
	busy := false
	for {
		n := e.cq.Poll(e.wcs[:])
		for i := range n {
			e.completed(&e.wcs[i])
		}
		busy = busy || n > 0
		if n < len(e.wcs) {
			break
		}
	}
	for {
		n := e.cq.Placed(e.qps[:])
		for _, q := range e.qps[:n] {
			if p := e.peerOf(q); p != nil {
				e.drain(p)
			}
		}
		busy = busy || n > 0
		if n < len(e.qps) {
			break
		}
	}
	if len(e.retry) > 0 {
		e.retryPeers()
	}
	return busy
}

// completed routes one completion to the protocol that posted its request.
func (e *Engine) completed(wc *transport.WC) {
	p := e.peerOf(wc.QP)
	if p == nil || p.state == peerFailed {
		return // what was in flight when the peer was given up
	}
	if wc.Status != transport.StatusSuccess {
		e.connectionEnded(p, wc)
		return
	}
	switch {
	case wc.Op == transport.OpRecv:
		e.finished(p, wc)
	case rendezvous.Owns(wc.ID):
		token, done, err := e.fetcher.Completed(wc)
		if err != nil {
			e.failPeer(p, err)
		} else if done {
			e.fetched(token)
		}
		e.kick(p)
	}
}

// finished takes a delivered FIN: the peer has all of a message that we announced.
func (e *Engine) finished(p *peer, wc *transport.WC) {
	if !wc.HasImm {
		e.failPeer(p, fmt.Errorf("%w: a message of %d bytes where only FIN may come", transport.ErrProtocol, wc.Bytes))
		return
	}
	if err := p.ch.QP().PostRecv(&e.finRoom); err != nil {
		e.failPeer(p, err)
		return
	}
	token, err := e.announcer.Finished(p.ch, wc.Imm)
	if err != nil {
		e.failPeer(p, err)
		return
	}
	if r := e.requests.byToken(token); r != nil {
		e.complete(r, nil)
	}
	e.kick(p)
}

func (e *Engine) peerOf(q transport.QPN) *peer {
	if q != e.lastQP || e.lastPeer == nil {
		e.lastQP, e.lastPeer = q, e.byQP[q]
	}
	return e.lastPeer
}
