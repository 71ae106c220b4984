package shm

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
)

// requests are the requests for connections through tables: those of others to this endpoint, and its own. A
// goroutine answers the former and takes the answers to the latter; whoever begins a request answers too, so
// that two ranks rarely ask each other.
type requests struct {
	table   *connectTable
	here    location
	fs      uint64           // of all arenas
	socket  *sys.WakeSocket  // where the goroutine sleeps
	address *sys.WakeAddress // of socket

	mu       sync.Mutex // serializes what changes connections; held during callbacks
	prover   arenaProver
	closed   bool
	pending  []*connectRequest  // own ones, until the table of connections knows how they ended
	answered []*sys.WakeAddress // of goroutines that have answers and sleep: answerRequests wakes them

	unconnected unconnected
}

// connectRequest is a request of this endpoint.
type connectRequest struct {
	// in the peer's table; nil once the peer has answered that another connection stays
	entry  *connectEntry
	dialed *cm.Peer[*qp]
	peer   uint32
	mem    []byte // the peer's arena
	pid    int
	owner  wakeName // of the peer's goroutine
	mine   *prepared
	told   bool // the peer's goroutine was woken if it slept
	began  time.Time
	failed func()
}

// answerWithin is how long a peer may take to answer a request. Then its socket is asked.
const answerWithin = 2 * time.Second

// openRequests opens this endpoint's table.
func (e *endpoint) openRequests() error {
	wake := newWakeName()
	address := wake.address()
	socket, err := sys.NewWakeSocket(address)
	if err != nil {
		return err
	}
	r := &e.requests
	r.socket, r.address = socket, address
	r.table = connectTableOf(e.dev.arena.mem)
	r.here, r.fs = locationOf(e.dev.arena.fd)
	r.prover = newArenaProver(&e.id)
	r.table.open(&r.prover, e.id.Rank, r.here.memory, wake)
	r.unconnected.open(e, wake)
	return nil
}

// closeRequests ends all requests.
func (e *endpoint) closeRequests() {
	r := &e.requests
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, own := range r.pending {
		if !e.withdraw(own) { // it is answered, and the peer may use the block
			atomic.StoreUint64(&own.entry.state, entryFree)
			e.dev.drop(own.mine, own.owner.address())
			_ = sys.UnmapShared(own.mem)
		}
	}
	r.pending = nil
	r.socket.Close()
}

// serveRequests takes messages without a connection, answers requests, and takes answers, until the endpoint
// is closed.
func (e *endpoint) serveRequests() {
	r := &e.requests
	for e.table.Context().Err() == nil {
		r.mu.Lock()
		found := !r.closed && (r.unconnected.take() || e.answerRequests() || e.takeAnswers())
		sleep := time.Duration(-1)
		if len(r.pending) > 0 {
			sleep = probePeriod
		}
		r.mu.Unlock()
		if found {
			continue
		}
		r.unconnected.memory.Sleep()
		sys.StoreFenced(&r.table.sleeping, 1) // requests and answers are looked for after it
		if !r.waiting() && r.socket.Wait(sleep) != nil {
			return
		}
		atomic.StoreUint64(&r.table.sleeping, 0)
		r.unconnected.memory.Awake()
	}
}

// waiting reports whether there is a request to answer, or an answer or a message to take.
func (r *requests) waiting() bool {
	if r.unconnected.memory.Full() {
		return true
	}
	for i := range r.table.entries {
		if s := atomic.LoadUint64(&r.table.entries[i].state); s == entryAsked || s == entryWithdrawn {
			return true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.pending, (*connectRequest).isAnswered)
}

func (own *connectRequest) isAnswered() bool {
	return own.entry != nil && atomic.LoadUint64(&own.entry.state) != entryAsked
}

// mustWake reports whether the goroutine of a table's owner sleeps. The caller must wake it then.
func (t *connectTable) mustWake() bool {
	sys.FullBarrier()
	return atomic.LoadUint64(&t.sleeping) != 0 && atomic.SwapUint64(&t.sleeping, 0) != 0
}

var _ transport.Beginner = (*endpoint)(nil)

// Begin asks a peer for a connection through the table in its memory.
func (e *endpoint) Begin(peer uint32, addr string, failed func()) bool {
	r := &e.requests
	_, at, err := e.reachable(transport.RankOf(peer), addr)
	if err != nil || at.space == "" || at.space != r.here.space || e.id.CheckPeer(peer) != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	e.answerRequests() // the peer may have asked already
	p, ours := e.table.Dial(peer)
	if !ours {
		_, state, _ := e.table.Current(peer)
		return state == cm.Connected
	}
	own := e.request(p, peer, at)
	if own == nil {
		e.table.Dialed(p, nil)
		return false
	}
	own.failed = failed
	r.pending = append(r.pending, own)
	if len(r.pending) == 1 {
		r.socket.Signal(r.address) // from now on it sleeps for a limited time
	}
	return true
}

// Ask wakes the peers that have not seen a request or a message.
func (e *endpoint) Ask() {
	r := &e.requests
	r.unconnected.ask(r.socket)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, own := range r.pending {
		if !own.told && own.entry != nil && !own.isAnswered() {
			own.told = true
			if connectTableOf(own.mem).mustWake() {
				r.socket.Signal(own.owner.address())
			}
		}
	}
}

// request makes this end of a connection and a request to the peer; nil if that is not possible.
func (e *endpoint) request(p *cm.Peer[*qp], peer uint32, at location) *connectRequest {
	mem, err := e.mapArena(at, transport.RankOf(peer))
	if err != nil {
		return nil
	}
	t := connectTableOf(mem)
	if !p.Callbacks.TryLock() {
		_ = sys.UnmapShared(mem)
		return nil
	}
	mine, private, err := e.prepare(peer)
	p.Callbacks.Unlock()
	if err != nil {
		_ = sys.UnmapShared(mem)
		return nil
	}
	e.dev.writeOffer(mine, private)
	x := t.take(e.id.Rank)
	if x == nil {
		_ = sys.UnmapShared(mem)
		e.dev.drop(mine, nil)
		return nil
	}
	here := &e.requests.here
	x.initiator, x.responder = e.id.Facing(peer), peer
	x.pid, x.fd, x.memory, x.block = here.pid, here.fd, here.memory, uint64(mine.in.off)
	atomic.StoreUint64(&x.state, entryAsked)
	return &connectRequest{entry: x, dialed: p, peer: peer, mem: mem, pid: int(at.pid), owner: t.wake,
		mine: mine, began: time.Now()}
}

// takeAnswers takes the answers to this endpoint's requests, and ends those that get none. It reports whether
// there was an answer. The lock is held.
func (e *endpoint) takeAnswers() (found bool) {
	r := &e.requests
	if len(r.pending) == 0 {
		return false
	}
	now := time.Now()
	r.pending = slices.DeleteFunc(r.pending, func(own *connectRequest) bool {
		if own.isAnswered() {
			found = true
			return e.takeAnswer(own)
		}
		_, state, _ := e.table.Current(own.peer)
		switch {
		case own.entry == nil && state != cm.Dialing:
			return true // the peer's connection has come
		case now.Sub(own.began) < answerWithin:
			return false
		}
		if !e.withdraw(own) {
			return e.takeAnswer(own)
		}
		e.giveUp(own)
		return true
	})
	return found
}

// takeAnswer takes an answer, and reports whether the request is over.
func (e *endpoint) takeAnswer(own *connectRequest) bool {
	x := own.entry
	switch s := atomic.LoadUint64(&x.state); s {
	case entryStays, entryRefused:
		atomic.StoreUint64(&x.state, entryFree)
		own.release(e.dev)
		if s == entryRefused {
			e.giveUp(own)
			return true
		}
		return false // until the peer's request comes
	default:
		q := e.conclude(own, s)
		if q == nil {
			e.giveUp(own)
			return true
		}
		e.table.Dialed(own.dialed, q)
		return true
	}
}

// conclude makes the connection that the peer has accepted, with its block; nil if the answer is not valid.
func (e *endpoint) conclude(own *connectRequest, block uint64) *qp {
	theirs, private, err := readOffer(own.mem, block)
	atomic.StoreUint64(&own.entry.state, entryFree)
	var f *peerMapping
	if err == nil {
		f, err = e.dev.mapping(theirs, own.mem, own.pid)
	}
	if err != nil || !e.table.Commit(own.dialed) {
		e.dev.drop(own.mine, own.owner.address()) // the peer may use it
		_ = sys.UnmapShared(own.mem)
		return nil
	}
	own.dialed.Callbacks.Lock()
	defer own.dialed.Callbacks.Unlock()
	return e.connected(own.pid, own.peer, own.mine, theirs, f, private)
}

// withdraw withdraws a request; false if it is answered.
func (e *endpoint) withdraw(own *connectRequest) bool {
	if own.entry == nil {
		return true
	}
	if !atomic.CompareAndSwapUint64(&own.entry.state, entryAsked, entryWithdrawn) {
		return false
	}
	own.release(e.dev)
	return true
}

// release frees what a request has kept. The peer has not accepted it, so it writes nothing to the block.
func (own *connectRequest) release(d *Device) {
	_ = sys.UnmapShared(own.mem)
	d.drop(own.mine, nil)
	own.entry, own.mem, own.mine = nil, nil, nil
}

// giveUp ends a request without a connection.
func (e *endpoint) giveUp(own *connectRequest) {
	if decides, _ := e.table.Dialed(own.dialed, nil); decides {
		e.table.Go(own.failed)
	}
}
