// Package engine moves one rank's messages. A Hub owns what the rank has once, such as its devices; an
// Engine, of which there is one for each endpoint, owns channels, requests and matching, and makes the
// progress that drives them. Both deal in bytes and world ranks; package mpi adds types and communicators.
//
// One lock guards everything of an engine. Whoever waits tries to take it and makes progress (sleep.go); no
// goroutine or Go channel stands between a call and the device.
//
// Names say who has the lock. A function whose name ends in Locked is entered and left with the lock held; it
// may release the lock in between where its comment says so. One whose name ends in AndUnlock is entered with
// it and left without. Handlers that the router calls (on…) have it. Of a type whose invariants hold "under
// the lock" and that has no functions named so, all methods need it. All other functions are called without
// it. Nothing outside this package has the lock. Hub has the order of all locks.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/mpi/internal/match"
	"github.com/weft-mpi/weft/mpi/internal/plain"
	"github.com/weft-mpi/weft/transport"
)

// Errors that callers tell apart; package mpi exports them under the same names.
var (
	ErrTruncate   = errors.New("message is longer than the receive buffer")
	ErrType       = plain.ErrType
	ErrProcFailed = errors.New("process failed")
	ErrAborted    = errors.New("job aborted")
	ErrRequest    = errors.New("invalid request")
	ErrBuffer     = errors.New("invalid buffer")
	ErrFinalized  = errors.New("Finalize has been called")
	// ErrUnderWay is the ErrFinalized of a call that came before Finalize
	ErrUnderWay = fmt.Errorf("%w while this call was under way", ErrFinalized)
	ErrLimit    = errors.New("limit reached")
)

// Config is what an engine is made of.
type Config struct {
	Fabrics  []Fabric // at least one; a peer is reached over the first of them that reaches it
	Identity transport.Identity
	Channel  channel.Config
	// large messages are written by their senders, where the receivers let them; else read by the receivers
	Grant bool
	// bytes of a message in one piece above which it goes by rendezvous; 0 for what each fabric says
	EagerLimit int
	// bytes of unexpected messages that are kept before peers are told to keep theirs; 0 for 64 MiB
	MaxUnexpectedBytes int
	// messages that no receive has matched, of all peers; 0 for DefaultMaxUnexpectedCount
	MaxUnexpectedCount int
	// how long a channel has to be quiet before its large ring is given back; 0 for never
	ShrinkAfter time.Duration
	// after how long a reply to a resize request is asked for again, and after which time again the peer is
	// given up; 0 for never
	ReplyTimeout   time.Duration
	Passive        time.Duration // between two passes for windows while the rank computes; 0 for none
	Lookup         Lookup
	ConnectTimeout time.Duration
	PeerTimeout    time.Duration // how long a peer may leave a share of a Put or a Get uncopied
	SpinTime       time.Duration // how long a waiting rank polls before it sleeps
	Cores          int           // of the rank's own; 0 if it shares them
	// if not nil: told when a peer has failed, before this rank acts on it; does not block
	PeerLost func(rank int)
	// nobody calls PeerFailed: this rank connects to whom it waits for, since a rank that has failed before
	// it connected would not be missed
	DetectsFailures bool
	// PeerFailed is called for each rank that has failed, and for no other, so nobody else is believed that
	// one has: a rank that breaks the rules could have others taken for failed, and these end
	LauncherReportsFailures bool
	// if not nil: told that a communicator was revoked, by its first context; does not block
	Revoked func(communicator uint32)
	// processors of this rank's completion handlers, which the endpoints get in turn; none for no handlers
	HandlerCores []int
	Endpoints    int   // how many the rank has; 0 for one
	Hook         *Hook // told of events; nil for none
	Turns        Turns // nil for none
	// if not nil: decides from whom receives and probes of any source take messages; see choices. There is a
	// Hook.Tell then
	Decided  func(number int) (source int, ok bool)
	Recorder *recorder.Recorder // of the latest events; nil for one that nobody else reads
	// bytes before the payload of each message whose receive has elements of more than a byte
	Header int
	// if not nil: told of each message that was dropped at the end, as nobody had received it. head is the
	// beginning of the message as far as it was here. It is called under the lock
	Unreceived func(context uint32, source, tag int, head []byte)
	Log        *slog.Logger
}

// Engine is one endpoint of a rank. It owns its lock, its queues in the rank's fabrics and its peers. Its
// parts own everything else; the exported ones have the methods that package mpi calls. Each part states its
// invariants on its type; all share the lock. All exported methods may be called from any goroutine.
type Engine struct {
	mu engineLock

	hub          *Hub
	number       int // of the endpoint
	rank         int
	size         int
	log          *slog.Logger
	hook         *Hook
	recorder     *recorder.Recorder
	fabrics      []*fabric
	peers        []*peer       // by world rank, nil until first use
	stopped      error         // why the engine does no more work; nil while it does
	closing      bool          // Shutdown has begun: peers that close have not failed
	unsuccessful atomic.Uint32 // calls of noteUnsuccessful
	stats        Stats

	matching    match.Table[*request, *unexpectedMessage]
	Requests    Requests
	Sends       Sends
	Recvs       Recvs
	unexpected  unexpectedMessages
	Probes      Probes
	coalescer   coalescer
	Cancels     Cancels
	Collectives Collectives
	Windows     Windows
	views       viewMessages
	Choices     Choices

	progress          progressEngine
	routes            router
	waiting           waiting
	completionHandler completionHandler
	connections       connections
	failures          failures
	Recovery          Recovery
	idleShrinker      idleShrinker
}

// DefaultMaxUnexpectedCount is how many messages without a receive a rank keeps, in about 300 bytes each
// besides their payload. A peer that has sent more than its share of them when they are reached is given
// up.
const DefaultMaxUnexpectedCount = 1 << 20

const (
	sendDepth = 256
	// posted Recvs beyond those of announcements and grants: a peer asks for a reply again, and answers this
	// rank when it does, each once at a time
	recvSlack = 4
	readDepth = 16
	cqDepth   = 1 << 16
)

// init gives every part its settings, and the engine to which it belongs.
func (e *Engine) init(c Config) {
	e.orderLocks()
	e.mu.Init()
	if c.Turns != nil {
		e.mu.takeTurns(c.Turns)
	}
	e.Recvs.header = c.Header
	e.Choices = Choices{e: e, decided: c.Decided}
	e.Requests.e, e.Sends.e, e.Recvs.e, e.Probes.e, e.Cancels.e = e, e, e, e, e
	e.progress.e, e.Collectives.e, e.completionHandler.e = e, e, e
	e.Windows.e, e.Windows.peerTimeout, e.views.e = e, c.PeerTimeout, e
	e.Collectives.buffers.budget = c.Channel.Budget
	e.Windows.passive.init(e, c.Passive)
	if n := len(c.HandlerCores); n > 0 {
		e.completionHandler.at.Core = c.HandlerCores[e.number%n]
		e.completionHandler.spin = min(c.SpinTime, handlerSpin)
	}
	e.routes.init(e)
	e.unexpected.init(e, c)
	e.connections.init(e, c)
	e.failures.e, e.failures.groups = e, map[uint32][]int32{}
	e.Recovery.init(e, c)
	e.waiting.init(e, c.SpinTime)
	e.coalescer.init(e)
	e.idleShrinker.init(e, c.ShrinkAfter)
}

// open makes the engine's part of every fabric.
func (e *Engine) open(c Config) error {
	for _, d := range e.hub.devices {
		f, err := e.newFabric(&c, d)
		if err != nil {
			return err
		}
		e.fabrics = append(e.fabrics, f)
		if err := e.hub.queues.add(f.name, f.Device, f.cq); err != nil {
			return err
		}
		if e.completionHandler.active() {
			e.mu.Lock()
			err = f.cq.RequestNotify(notifyAll)
			e.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Rank is the world rank of this engine.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks.
func (e *Engine) Size() int { return e.size }

// Number is the number of the endpoint.
func (e *Engine) Number() int { return e.number }

// Hook is what is told of the calls; nil for none.
func (e *Engine) Hook() *Hook { return e.hook }

// Hub is the rank whose endpoint it is.
func (e *Engine) Hub() *Hub { return e.hub }
