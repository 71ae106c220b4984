// Package engine moves one rank's messages. A Hub owns what the rank has once, such as its devices; an
// Engine, of which there is one for each endpoint, owns channels, requests and matching, and makes the
// progress that drives them. Both deal in bytes and world ranks; package mpi adds types and communicators.
//
// One lock guards everything of an engine. A goroutine that waits tries to take it and makes progress itself
// (sleep.go): on the fast path no other goroutine and no Go channel stands between a call and the device.
//
// Names say who has the lock. A function whose name ends in Locked is entered and left with the lock held; it
// may release the lock in between where its comment says so. One whose name ends in AndUnlock is entered with
// it and left without. Handlers that the router calls (on…) have it. Exported functions are called without
// it, and nothing outside this package holds it. Every other function that uses what the lock guards, and
// does not take the lock itself, is called with the lock held. Hub states the order of all locks.
//
// A message takes one of two ways. Eager: its bytes are copied into a slot of the ring that the receiver has
// for this peer: as many lines of 64 bytes as one message may take. Rendezvous: the sender announces the
// message (RTS, or PIECE for a further buffer), and the receiver reads its bytes and ends the announcement
// (FIN, or ATS: "acknowledge to sender"); or the receiver grants its memory (CTS), and the sender writes
// there. Small sends between two passes, a burst, may share a slot as a batch; a run is consecutive messages
// of a batch with equal envelope and length. A channel's phase says which of its ring sizes is in use, 0 the
// smallest. Messages without a receive wait as unexpected messages; the matching table (package match) has
// them and the posted receives.
//
// A pass is one round of progress (progressEngine.poll). Of the goroutines of a rank that sleep in calls, one
// is the progress owner: it sleeps until something arrives, and then makes passes for all (sleepers.go).
// Between ranks of one host, short collectives go through mailboxes (mailboxes.go), and long ones may pull:
// their ranks read each other's memory (mailboxpull.go).
//
// An endpoint is a progress domain of a rank, with connections and matching of its own; an Engine implements
// one. A context, when not a context.Context, is a context id: the number that separates the messages of
// communicators. A rank shares its core with others if SpinTime is 0. Ids such as E10 are requirements of
// docs/internals/conformance.md.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/copycost"
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

// Rendezvous says how the bytes of large messages move.
type Rendezvous uint8

const (
	// RendezvousAuto: receivers read where they can copy the peer's memory immediately, and views; otherwise
	// they grant their buffers
	RendezvousAuto Rendezvous = iota
	RendezvousRead
	RendezvousWrite // receivers grant memory, and senders write there
)

// Config has the settings of a rank and its engines.
type Config struct {
	Fabrics    []Fabric // at least one; a peer is reached over the first of them that reaches it
	Identity   transport.Identity
	Channel    channel.Config
	Rendezvous Rendezvous
	// length above which a message from one contiguous buffer goes by rendezvous; 0 for each fabric's default
	EagerLimit int
	StartCosts copycost.Costs // hold until they are measured; a zero field is that of copycost.Default
	// bytes of unexpected messages that this rank stores before it tells peers to announce payload instead of
	// sending it; 0 for 64 MiB
	MaxUnexpectedBytes int
	// number of unexpected messages of all peers; 0 for DefaultMaxUnexpectedCount
	MaxUnexpectedCount int
	// how long a channel must be idle before its large ring is freed; 0 for never
	ShrinkAfter time.Duration
	// how long to wait for the reply to a resize request before asking again; after the same time once more
	// the peer counts as failed; 0 to wait forever. The heartbeat asks, so a rank asks only if one of its
	// devices has a TickPeriod
	ReplyTimeout time.Duration
	Passive      time.Duration // time between two passes for windows while the rank computes; 0 for none
	Lookup       Lookup
	// called before the Lookups of several ranks, which then answer sooner; or nil
	LookupAhead    func(ranks []uint32)
	ConnectTimeout time.Duration
	PeerTimeout    time.Duration // bounds the wait for a peer that copies its portion of a Put or Get
	SpinTime       time.Duration // how long a waiting rank polls before it sleeps; 0 if it shares its core
	Cores          int           // that this rank alone uses; 0 if it shares its cores
	Together       bool          // all ranks are goroutines of this process
	// if not nil, called when a peer has failed, before this rank acts on it; must not block. The rank is
	// NoRank if others have seen a failure and have not named it
	PeerLost func(rank int)
	// nobody calls PeerFailed. This rank connects to every rank that it waits for, because the failure of a
	// rank without a connection would go unnoticed
	DetectsFailures bool
	// PeerFailed is called for exactly the ranks that have failed. Messages by which other ranks report a
	// failure are kept until PeerFailed confirms it (Recovery.holdsBack): a faulty rank could use them to end
	// correct ones
	LauncherReportsFailures bool
	// if not nil, called when a communicator was revoked, with its first context; must not block
	Revoked func(communicator uint32)
	// if not nil, called when the rank has stopped, before any operation fails for that; must not block
	Stopped func()
	// cores of this rank's completion handlers, which are assigned to endpoints round robin; none for no
	// handlers
	HandlerCores []int
	Endpoints    int   // number of the rank's endpoints; 0 for one
	Hook         *Hook // gets the events; nil for none
	Turns        Turns // nil for none
	// if not nil, decides which source a receive or probe of any source matches (see Choices); Hook.Tell must
	// be set then
	Decided  func(number int) (source int, ok bool)
	Recorder *recorder.Recorder // keeps the latest events; nil for one of its own
	// in checking mode (WEFT_CHECK=1), length of the header that package mpi puts before each payload: the
	// test for whole elements subtracts it. 0 otherwise
	Header int
	// if not nil, called under the lock for each message that was dropped at the end because nobody had
	// received it. head is the part of its beginning that had arrived
	Unreceived func(context uint32, source, tag int, head []byte)
	Log        *slog.Logger
}

// Engine is one endpoint of a rank. It owns its lock, its completion queues in the rank's fabrics and its
// peers. Its parts own everything else; the exported ones have the methods that package mpi calls. Each part
// states its invariants on its type; all share the lock. All exported methods may be called from any
// goroutine.
type Engine struct {
	mu engineLock

	hub          *Hub
	number       int // the endpoint's number
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

	matching     match.Table[*request, *unexpectedMessage]
	Requests     Requests
	Sends        Sends
	Recvs        Recvs
	unexpected   unexpectedMessages
	Probes       Probes
	coalescer    coalescer
	Cancels      Cancels
	Collectives  Collectives
	MailboxCalls MailboxCalls
	Windows      Windows
	views        viewMessages
	Choices      Choices

	progress          progressEngine
	routes            router
	waiting           waiting
	completionHandler completionHandler
	connections       connections
	failures          failures
	Recovery          Recovery
	idleShrinker      idleShrinker
	mappedKiB         atomic.Int64 // of CopyCosts; 0 before it is known
	rewriteKiB        atomic.Int64 // likewise
}

// DefaultMaxUnexpectedCount is how many unexpected messages a rank stores, each in about 300 bytes besides
// its payload. At this limit a peer that has sent more than its share of them counts as failed.
const DefaultMaxUnexpectedCount = 1 << 20

const (
	sendDepth = 256
	// Recvs posted beyond those for announcements and grants: for the peer's requests to send the reply to a
	// ring-resize request again, and for its answers to such requests of this rank, one at a time each
	recvSlack = 4
	readDepth = 16
	cqDepth   = 1 << 16
)

// init gives every part its settings and its engine.
func (e *Engine) init(c Config) {
	e.orderLocks()
	e.mu.Init()
	if c.Turns != nil {
		e.mu.takeTurns(c.Turns)
	}
	e.Recvs.header = c.Header
	e.Choices = Choices{e: e, decided: c.Decided}
	e.Requests.e, e.Sends.e, e.Recvs.e, e.Probes.e, e.Cancels.e = e, e, e, e, e
	e.progress.e, e.Collectives.e, e.MailboxCalls.e, e.completionHandler.e = e, e, e, e
	e.Windows.e, e.Windows.peerTimeout, e.views.e = e, c.PeerTimeout, e
	e.MailboxCalls.buffers.budget = c.Channel.Budget
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
	e.waiting.init(e, c)
	e.coalescer.init(e)
	e.idleShrinker.init(e, c.ShrinkAfter)
}

// open makes the engine's fabrics, one for each device of the rank.
func (e *Engine) open(c Config) error {
	for _, d := range e.hub.devices {
		f, err := e.newFabric(&c, d)
		if err != nil {
			return err
		}
		e.fabrics = append(e.fabrics, f)
		if e.completionHandler.active() {
			e.mu.Lock()
			err = f.cq.RequestNotify(notifyAll)
			e.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	// last: nobody arms the queues of an engine that could not be opened, so no sleep may wait for them
	for i, f := range e.fabrics {
		if err := e.hub.queues.add(f.name, f.Device, f.cq); err != nil {
			for _, added := range e.fabrics[:i] {
				err = errors.Join(err, e.hub.queues.remove(added.cq))
			}
			return err
		}
	}
	return nil
}

// Rank returns the world rank.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks.
func (e *Engine) Size() int { return e.size }

// Number returns the number of the endpoint.
func (e *Engine) Number() int { return e.number }

// Hook returns the hook that gets the events; nil for none.
func (e *Engine) Hook() *Hook { return e.hook }

// Hub returns the rank to which the endpoint belongs.
func (e *Engine) Hub() *Hub { return e.hub }
