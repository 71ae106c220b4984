// Package engine moves one rank's messages: it owns the rank's device, channels, requests and matching, and makes the
// passes that drive them. It deals in bytes and world ranks; package mpi puts types and communicators on top.
//
// One lock guards everything. Whoever waits takes it by trying and makes passes (see wait.go); no goroutine or Go channel
// stands between a call and the device.
package engine

import (
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
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
	ErrBuffer     = errors.New("invalid buffer")
	ErrFinalized  = errors.New("Finalize has been called")
)

// Config is what an engine is made of.
type Config struct {
	Device         transport.Device
	Identity       transport.Identity
	Channel        channel.Config
	Grant          bool                              // large messages are written by their senders, where the receivers let them; else read by the receivers
	EagerMost      int                               // bytes of a message in one piece above which it goes by rendezvous; 0 for what the largest slot carries
	KeepMost       int                               // bytes of unexpected messages that are kept before peers are told to keep theirs; 0 for 64 MiB
	ShrinkAfter    time.Duration                     // how long a channel has to be quiet before its large ring is given back; 0 for never
	Lookup         func(rank uint32) (string, error) // address of a peer's endpoint; may block
	ConnectTimeout time.Duration
	SpinFor        time.Duration // how long a waiting rank polls before it sleeps
	HandlerCores   []int         // processors of this rank's completion handler: the first of them is its thread's; none for no handler
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

	eagerMost   int
	keepMost    int
	shrinkAfter time.Duration
	reads       int // of one QP under way at once

	device   transport.Device
	pd       transport.PD
	cq       transport.CQ
	endpoint transport.Endpoint

	peers    []*peer // by world rank, nil until first use
	failed   []*peer // those that have failed, in order
	groups   map[uint32][]int32
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

	kept    int     // bytes of unexpected messages
	holding []*peer // peers that have been told to keep theirs
	window  [][]byte

	batchMemory [][]byte // for the batches of peers

	allocated allocated

	waiting   waiting
	held      held
	reclaim   reclaim
	heartbeat heartbeat
	handler   handler
	changes   atomic.Uint32 // passes of the handler

	dead    error // why the engine does no more work; nil while it does
	closing bool  // Shutdown has begun: peers that close are no failure

	dialing sync.WaitGroup // goroutines of connects
	stats   Stats

	noBytes transport.RecvWR // room for a message of no bytes
	wcs     [32]transport.WC
	qps     [32]transport.QPN
}

const (
	sendDepth = 256
	recvSlack = 4 // posted Recvs beyond those of announcements and grants: a peer asks for an answer again, and only once at a time
	readDepth = 16
	cqDepth   = 1 << 16
)

// New makes the engine of one rank and starts listening. The device belongs to the engine from then on.
func New(c Config) (*Engine, error) {
	e := &Engine{
		rank: int(c.Identity.Rank), size: int(c.Identity.Size), log: c.Log, lookup: c.Lookup,
		dialFor: c.ConnectTimeout, spinFor: c.SpinFor, chanConf: c.Channel, device: c.Device,
		eagerMost: c.EagerMost, keepMost: c.KeepMost, shrinkAfter: c.ShrinkAfter,
		peers: make([]*peer, c.Identity.Size), byQP: map[transport.QPN]*peer{}, groups: map[uint32][]int32{},
	}
	if e.eagerMost == 0 {
		e.eagerMost = math.MaxInt
	}
	if e.keepMost == 0 {
		e.keepMost = 64 << 20
	}
	e.waiting.init(e)
	e.held.init(e)
	e.reclaim.init(e)
	var err error
	if e.pd, err = c.Device.AllocPD(); err != nil {
		return nil, errors.Join(err, c.Device.Close())
	}
	if len(c.HandlerCores) > 0 {
		if err := e.startHandler(c.HandlerCores[0], c.SpinFor); err != nil {
			return nil, errors.Join(err, c.Device.Close())
		}
	}
	if e.cq, err = c.Device.CreateCQ(cqDepth, e.handler.id); err != nil {
		return nil, errors.Join(err, c.Device.Close())
	}
	e.reads = min(readDepth, c.Device.Query().MaxReads)
	e.announcer = rendezvous.NewAnnouncer(e.pd, rendezvous.AnnouncerConfig{})
	e.fetcher = rendezvous.NewFetcher(e.pd, rendezvous.FetcherConfig{Grant: c.Grant || e.reads == 0})
	if err := e.listen(c.Identity); err != nil { // without the lock: a handler may want it
		return nil, errors.Join(err, c.Device.Close())
	}
	e.heartbeat.init(e)
	return e, nil
}

func (e *Engine) listen(id transport.Identity) (err error) {
	e.mu.Lock() // an early peer's callback waits until the endpoint is known
	defer e.mu.Unlock()
	if e.handled() {
		if err := e.cq.RequestNotify(watched); err != nil {
			return err
		}
	}
	e.endpoint, err = e.device.Listen(id, (*acceptor)(e))
	return err
}

// Addr is the address to publish to the peers.
func (e *Engine) Addr() string { return e.endpoint.Addr() }

// Rank is the world rank of this engine.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks.
func (e *Engine) Size() int { return e.size }

// pass drives everything once, under the lock, and tells whether anything happened.
func (e *Engine) pass() bool {
	e.stats.Passes++
	e.flush()
	if len(e.retry) > 0 {
		e.retryPeers() // first: what the pass itself puts off is for the next one
	}
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
		e.notified(p, wc)
	case !rendezvous.Owns(wc.ID):
	case wc.Op == transport.OpRead:
		token, done, err := e.fetcher.Completed(wc)
		e.fetched(p, token, done, err)
	default:
		token, done, err := e.announcer.Completed(wc)
		if done {
			p.stats.Granted++
		}
		e.taken(p, token, done, err)
	}
}

// notified takes a delivered notice: FIN, which says that the peer has all of what we announced, the end of what it has written into a buffer of
// ours, or, without an immediate, the request to say an answer of the channel again.
func (e *Engine) notified(p *peer, wc *transport.WC) {
	if !wc.HasImm {
		err := p.ch.AskedAgain()
		if err == nil {
			err = p.ch.QP().PostRecv(&e.noBytes)
		}
		if err != nil {
			e.failPeer(p, err)
		}
		return
	}
	if rendezvous.EndsGrant(wc.Imm) {
		token, done, err := e.fetcher.Ended(p.ch, wc.Imm)
		e.fetched(p, token, done, err)
		return
	}
	token, err := e.announcer.Finished(p.ch, wc.Imm)
	e.taken(p, token, err == nil, err)
}

// taken notes what has become of an announcement: with done the peer has all of it.
func (e *Engine) taken(p *peer, token uint64, done bool, err error) {
	if r := e.requests.byToken(token); done && r != nil && !r.done.Load() {
		if r.open--; r.open == 0 && r.msg.Done() {
			e.complete(r, nil)
		}
	}
	e.goOn(p, err)
}

// goOn has a peer do what it has room for now, or gives it up.
func (e *Engine) goOn(p *peer, err error) {
	if err != nil {
		e.failPeer(p, err)
		return
	}
	e.kick(p)
}

func (e *Engine) peerOf(q transport.QPN) *peer {
	if q != e.lastQP || e.lastPeer == nil {
		e.lastQP, e.lastPeer = q, e.byQP[q]
	}
	return e.lastPeer
}
