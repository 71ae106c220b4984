// Package engine moves one rank's messages: it owns the rank's device, channels, requests and matching, and makes the
// passes that drive them. It deals in bytes and world ranks; package mpi puts types and communicators on top.
//
// One lock guards everything. Whoever waits takes it by trying and makes passes (see wait.go); no goroutine or Go channel
// stands between a call and the device.
package engine

import (
	"errors"
	"log/slog"
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
	Fabrics        []Fabric // at least one; a peer is reached over the first of them that reaches it
	Identity       transport.Identity
	Channel        channel.Config
	Grant          bool          // large messages are written by their senders, where the receivers let them; else read by the receivers
	EagerMost      int           // bytes of a message in one piece above which it goes by rendezvous; 0 for what each fabric says
	KeepMost       int           // bytes of unexpected messages that are kept before peers are told to keep theirs; 0 for 64 MiB
	ShrinkAfter    time.Duration // how long a channel has to be quiet before its large ring is given back; 0 for never
	Lookup         Lookup
	ConnectTimeout time.Duration
	SpinFor        time.Duration // how long a waiting rank polls before it sleeps
	HandlerCores   []int         // processors of this rank's completion handler: the first of them is its thread's; none for no handler
	Log            *slog.Logger
}

// Engine is the message engine of one rank. All methods may be called from any goroutine.
type Engine struct {
	mu lock

	rank     int
	size     int
	log      *slog.Logger
	lookup   Lookup
	dialFor  time.Duration
	spinFor  time.Duration
	yields   int // idle passes before a waiting rank sleeps, where it shares its core
	chanConf channel.Config

	keepMost    int
	shrinkAfter time.Duration

	fabrics []*fabric
	peers   []*peer // by world rank, nil until first use
	failed  []*peer // those that have failed, in order
	groups  map[uint32][]int32
	retry   []*peer // peers with work that only a later pass can do

	table    match.Table[*request, *arrival]
	requests requestPool
	arrivals arrivalPool
	matched  []*arrival // held by a Message

	kept    int     // bytes of unexpected messages
	holding []*peer // peers that have been told to keep theirs
	window  [][]byte
	copies  int // bytes of announced messages that may be copied before the next pass; less than 0 after a long one

	batchMemory [][]byte // for the batches of peers

	allocated allocated

	waiting   waiting
	held      held
	reclaim   reclaim
	heartbeat heartbeat
	handler   handler
	changes   atomic.Uint32 // passes of the handler
	directs   uint32        // receives that were tried in the ring itself
	reliefs   uint32        // sends that found a ring full, and waited for room

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

// New makes the engine of one rank and starts listening. The devices belong to the engine from then on.
func New(c Config) (*Engine, error) {
	e := &Engine{
		rank: int(c.Identity.Rank), size: int(c.Identity.Size), log: c.Log, lookup: c.Lookup,
		dialFor: c.ConnectTimeout, spinFor: c.SpinFor, chanConf: c.Channel,
		keepMost: c.KeepMost, shrinkAfter: c.ShrinkAfter,
		peers: make([]*peer, c.Identity.Size), groups: map[uint32][]int32{},
	}
	if e.keepMost == 0 {
		e.keepMost = 64 << 20
	}
	e.chanConf.Abreast = c.SpinFor > 0 && len(c.HandlerCores) == 0
	e.mu.init()
	e.waiting.init(e)
	e.held.init(e)
	e.reclaim.init(e)
	if err := e.open(c); err != nil {
		for _, f := range c.Fabrics {
			err = errors.Join(err, f.Device.Close())
		}
		return nil, err
	}
	e.heartbeat.init(e)
	return e, nil
}

// open makes the engine's part of every fabric, and listens.
func (e *Engine) open(c Config) error {
	for i := range c.Fabrics {
		f, err := e.newFabric(&c, c.Fabrics[i])
		if err != nil {
			return err
		}
		e.fabrics = append(e.fabrics, f)
	}
	for _, f := range e.fabrics {
		if err := e.listen(f, c.Identity); err != nil {
			return err
		}
	}
	return nil
}

// Rank is the world rank of this engine.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks.
func (e *Engine) Size() int { return e.size }

// pass drives everything once, under the lock, and tells whether anything happened.
func (e *Engine) pass() bool {
	e.stats.Passes++
	e.copies = copiesAPass
	e.flush()
	if len(e.retry) > 0 {
		e.retryPeers() // first: what the pass itself puts off is for the next one
	}
	busy := false
	for _, f := range e.fabrics {
		busy = e.poll(f) || busy
	}
	return busy
}

// poll drives one fabric.
func (e *Engine) poll(f *fabric) (busy bool) {
	for {
		n := f.cq.Poll(e.wcs[:])
		for i := range n {
			e.completed(f, &e.wcs[i])
		}
		busy = busy || n > 0
		if n < len(e.wcs) {
			break
		}
	}
	for {
		n := f.cq.Placed(e.qps[:])
		for _, q := range e.qps[:n] {
			if p := f.peerOf(q); p != nil {
				e.drain(p)
			}
		}
		busy = busy || n > 0
		if n < len(e.qps) {
			break
		}
	}
	for _, p := range f.watched {
		switch {
		case p.ch.Ready():
			e.drain(p)
			busy = true
		case p.ch.Paused(): // what it waits for is placed without a message
			e.kick(p)
		}
	}
	return busy
}

// completed routes one completion to the protocol that posted its request.
func (e *Engine) completed(f *fabric, wc *transport.WC) {
	p := f.peerOf(wc.QP)
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
		token, done, err := p.fabric.fetcher.Completed(wc)
		e.fetched(p, token, done, err)
	default:
		token, done, err := p.fabric.announcer.Completed(wc)
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
		token, done, err := p.fabric.fetcher.Ended(p.ch, wc.Imm)
		e.fetched(p, token, done, err)
		return
	}
	token, err := p.fabric.announcer.Finished(p.ch, wc.Imm)
	e.taken(p, token, err == nil, err)
}

// taken notes what has become of an announcement: with done the peer has all of it.
func (e *Engine) taken(p *peer, token uint64, done bool, err error) {
	if r := e.requests.byToken(token); done && r != nil && !r.completed() {
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
