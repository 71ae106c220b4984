package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

type endpoint struct {
	verbs.ReachesAll
	verbs.NoTransferrer

	dev       *device
	id        transport.Identity
	acceptor  transport.Acceptor
	closed    bool
	calls     int            // running callbacks
	quiet     *sync.Cond     // on the network's mutex: calls has become 0
	running   sync.WaitGroup // goroutines of attempts
	connected map[uint32]*qp // the newest of each peer
	begun     int            // queue pairs so far, for their seeds
}

// phase is the phase of an attempt to connect.
type phase uint8

const (
	phaseStart phase = iota + 1 // left when both have authenticated and agreed
	// both sides have answered Prepare; left when the queue pairs exist, or to yield
	phasePrepared
	// yielded to the attempt of the lower rank; left when that one ends
	phaseYielded
	phaseDone // succeeded or failed; final
)

// attempt is one attempt to connect two ranks.
type attempt struct {
	from    *endpoint
	rank    uint32
	addr    string
	phase   phase
	rival   *attempt
	shape   [2]transport.QPConfig // of the initiator, and of the other
	private [2][]byte
	waiters int           // number of waiting Connects
	cancel  chan struct{} // closed when nobody waits for it any more
	dropped bool          // cancel is closed
	held    bool          // counted as delayed
	err     error
	done    chan struct{} // closed in phaseDone
}

func (d *device) Listen(id transport.Identity, acceptor transport.Acceptor) (transport.Endpoint, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	switch {
	case d.gone:
		return nil, fmt.Errorf("listen: %w", d.goneErr())
	case d.ep != nil:
		return nil, fmt.Errorf("listen: %s has an endpoint already: %w", d.addr(), transport.ErrInvalid)
	case id.Rank >= id.Size:
		return nil, fmt.Errorf("listen: rank %d of %d: %w", id.Rank, id.Size, transport.ErrInvalid)
	case acceptor == nil:
		return nil, fmt.Errorf("listen: no acceptor: %w", transport.ErrInvalid)
	}
	d.ep = &endpoint{dev: d, id: id, acceptor: acceptor, quiet: sync.NewCond(&d.net.mu),
		connected: map[uint32]*qp{}}
	return d.ep, nil
}

func (e *endpoint) Addr() string { return e.dev.addr() }

func (e *endpoint) Connect(ctx context.Context, rank uint32, addr string) error {
	a, err := e.attempt(rank, addr)
	if a == nil || err != nil {
		return err
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
	}
	n := e.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.phase == phaseDone {
		return a.err
	}
	if a.waiters--; a.waiters == 0 {
		a.drop()
	}
	return fmt.Errorf("connect to rank %d at %s: %w", transport.RankOf(rank), addr, ctx.Err())
}

// attempt begins an attempt or joins the current one. It returns nil without an error if the two are
// connected.
func (e *endpoint) attempt(rank uint32, addr string) (*attempt, error) {
	n := e.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case e.closed || e.dev.gone:
		return nil, fmt.Errorf("connect to rank %d at %s: %w", transport.RankOf(rank), addr, e.dev.goneErr())
	}
	if err := e.id.CheckPeer(rank); err != nil {
		return nil, err
	}
	if q := e.live(rank); q != nil && q.handed {
		return nil, nil
	}
	for _, a := range n.attempts {
		if a.from == e && a.rank == rank && !a.dropped {
			a.waiters++
			return a, nil
		}
	}
	a := &attempt{from: e, rank: rank, addr: addr, phase: phaseStart, waiters: 1,
		cancel: make(chan struct{}), done: make(chan struct{})}
	n.attempts = append(n.attempts, a)
	if !n.manual {
		e.running.Add(1)
		go a.run()
	}
	return a, nil
}

// live returns the queue pair to a rank if neither end has failed.
func (e *endpoint) live(rank uint32) *qp {
	q := e.connected[rank]
	if q == nil || q.final() || q.cut || q.released || q.peer.released {
		return nil
	}
	return q
}

func (e *endpoint) Close() error {
	n := e.dev.net
	n.mu.Lock()
	e.closed = true
	for _, a := range append([]*attempt(nil), n.attempts...) {
		if a.from == e {
			a.drop()
			if n.manual {
				a.end(a.dropErr())
			}
		}
	}
	for e.calls > 0 {
		e.quiet.Wait()
	}
	n.mu.Unlock()
	e.running.Wait()
	return nil
}

// drop makes an attempt end at its next step.
func (a *attempt) drop() {
	if !a.dropped {
		a.dropped = true
		close(a.cancel)
	}
}

func (a *attempt) dropErr() error {
	return fmt.Errorf("connect to rank %d at %s: given up: %w", transport.RankOf(a.rank), a.addr,
		transport.ErrDeviceGone)
}

// end removes an attempt from the network.
func (a *attempt) end(err error) {
	if a.phase == phaseDone {
		return
	}
	n := a.from.dev.net
	a.phase, a.err = phaseDone, err
	for i, have := range n.attempts {
		if have == a {
			n.attempts = append(n.attempts[:i:i], n.attempts[i+1:]...)
			break
		}
	}
	close(a.done)
}

// run advances an attempt until it is done.
func (a *attempt) run() {
	defer a.from.running.Done()
	n := a.from.dev.net
	for {
		n.mu.Lock()
		wait := a.waitsFor()
		pair := a.pair()
		n.mu.Unlock()
		if wait != nil {
			select {
			case <-wait:
			case <-a.cancel:
			}
		}
		pair.Lock() // so that no acceptor gets two calls about one peer at a time
		n.mu.Lock()
		a.advance()
		done := a.phase == phaseDone
		n.mu.Unlock()
		pair.Unlock()
		if done {
			return
		}
	}
}

// Step advances one attempt to connect, chosen by the seed, and calls the acceptors concerned. It reports
// whether there was one. It requires ManualConnect, and one goroutine at a time.
func (n *Network) Step() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	ready := n.readyAttempts()
	if !n.manual || len(ready) == 0 {
		return false
	}
	slices.SortFunc(ready, func(a, b *attempt) int { // goroutines may have begun them in any order
		return cmp.Or(cmp.Compare(a.from.dev.id, b.from.dev.id), cmp.Compare(a.rank, b.rank))
	})
	ready[n.rng.IntN(len(ready))].advance()
	return true
}

// Connecting reports whether Step would find an attempt.
func (n *Network) Connecting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.readyAttempts()) > 0
}

// readyAttempts returns the attempts that can advance.
func (n *Network) readyAttempts() (ready []*attempt) {
	for _, a := range n.attempts {
		wait := a.waitsFor()
		select {
		case <-wait:
			wait = nil
		case <-a.cancel:
			wait = nil
		default:
		}
		if wait == nil {
			ready = append(ready, a)
		}
	}
	return ready
}

// waitsFor returns the channel that an attempt waits for; nil for none.
func (a *attempt) waitsFor() <-chan struct{} {
	n := a.from.dev.net
	if a.phase == phaseYielded {
		return a.rival.done
	}
	pair := a.ranks()
	if open := n.gates[pair]; open != nil {
		if !a.held {
			a.held = true
			n.counters.Delayed++
		}
		return open
	}
	if met := n.collisions[pair]; met != nil && a.phase == phasePrepared {
		return met
	}
	return nil
}

// pair returns the lock for callbacks about a pair of addresses.
func (a *attempt) pair() *sync.Mutex {
	n := a.from.dev.net
	x, y := a.from.dev.addr(), a.addr
	key := [2]string{min(x, y), max(x, y)}
	if n.pairs[key] == nil {
		n.pairs[key] = new(sync.Mutex)
	}
	return n.pairs[key]
}

// advance takes one step. The network's mutex is held, except while an acceptor is called.
func (a *attempt) advance() {
	if a.phase == phaseDone {
		return
	}
	if a.dropped || a.from.closed || a.from.dev.gone {
		a.end(a.dropErr())
		return
	}
	switch a.phase {
	case phaseStart:
		a.start()
	case phasePrepared:
		a.commit()
	case phaseYielded:
		if a.from.live(a.rank) != nil {
			a.end(nil)
			return
		}
		a.phase = phaseStart // the rival failed
	}
}

// self returns the initiating rank, as the other side sees it.
func (a *attempt) self() uint32 { return a.from.id.Facing(a.rank) }

// ranks returns the two ranks.
func (a *attempt) ranks() [2]uint32 { return pairOf(a.from.id.Rank, transport.RankOf(a.rank)) }

// target returns the endpoint at the other side, or why there is none.
func (a *attempt) target() (*endpoint, error) {
	n := a.from.dev.net
	to := n.find(a.addr)
	if to == nil {
		return nil, fmt.Errorf("nobody listens: %w", transport.ErrPeerLost)
	}
	return to, nil
}

func (a *attempt) start() {
	to, err := a.target()
	if err != nil {
		a.fail(nil, err)
		return
	}
	if a.from.live(a.rank) != nil {
		a.end(nil)
		return
	}
	if err := a.authenticate(to); err != nil {
		a.fail(to, err)
		return
	}
	sides := [2]*endpoint{a.from, to}
	ranks := [2]uint32{a.rank, a.self()}
	for i, e := range sides {
		err := e.call(func() error {
			cfg, private, err := e.acceptor.Prepare(ranks[i])
			if err != nil {
				return fmt.Errorf("rank %d says: %s: %w", e.id.Rank, err.Error(), transport.ErrRefused)
			}
			a.shape[i], a.private[i] = cfg, append([]byte(nil), private...)
			return nil
		})
		if err == nil {
			err = e.checkShape(a.shape[i], a.private[i])
		}
		if err != nil {
			a.fail(to, err)
			return
		}
	}
	a.phase = phasePrepared
	n := a.from.dev.net
	pair := a.ranks()
	for _, r := range n.attempts {
		if met := n.collisions[pair]; met != nil && r.from == to && r.rank == a.self() &&
			r.phase == phasePrepared {
			close(met)
			delete(n.collisions, pair)
		}
	}
}

// authenticate compares what both sides would prove to each other.
func (a *attempt) authenticate(to *endpoint) error {
	n, me, other := a.from.dev.net, a.from.id, to.id
	pair, rank := a.ranks(), transport.RankOf(a.rank)
	switch {
	case me.Secret != other.Secret && n.mutant != acceptAnySecret:
		return fmt.Errorf("the secrets differ: %w", transport.ErrAuth)
	case me.Job != other.Job && n.mutant != acceptAnySecret:
		return fmt.Errorf("job %q meets job %q: %w", me.Job, other.Job, transport.ErrAuth)
	case other.Rank != rank:
		return fmt.Errorf("rank %d is there: %w", other.Rank, transport.ErrRefused)
	case me.Rank >= other.Size || me.Rank == other.Rank:
		return fmt.Errorf("rank %d of %d cannot be rank %d: %w", other.Rank, other.Size, me.Rank,
			transport.ErrRefused)
	case other.CheckPeer(a.self()) != nil:
		return fmt.Errorf("rank %d has no port %d: %w", other.Rank, transport.PortOf(a.rank),
			transport.ErrRefused)
	case n.refusals[pair] > 0:
		n.refusals[pair]--
		return fmt.Errorf("turned away: %w", transport.ErrRefused)
	}
	return nil
}

// fail ends an attempt and notifies the other side.
func (a *attempt) fail(to *endpoint, err error) {
	a.from.dev.net.counters.Refused++
	if to != nil {
		_ = to.call(func() error { // a closed endpoint need not be notified
			to.acceptor.Refused(fmt.Sprintf("rank %d at %s", a.from.id.Rank, a.from.dev.addr()), err)
			return nil
		})
	}
	a.end(fmt.Errorf("connect rank %d to rank %d at %s: %w", a.from.id.Rank, transport.RankOf(a.rank), a.addr,
		err))
}

// call makes a callback with the network's mutex released.
func (e *endpoint) call(f func() error) error {
	if e.closed || e.dev.gone {
		return fmt.Errorf("%s is closed: %w", e.dev.addr(), transport.ErrPeerLost)
	}
	n := e.dev.net
	e.calls++
	n.mu.Unlock()
	err := f()
	n.mu.Lock()
	if e.calls--; e.calls == 0 {
		e.quiet.Broadcast()
	}
	return err
}

func (e *endpoint) checkShape(cfg transport.QPConfig, private []byte) error {
	domain, ok := cfg.PD.(*pd)
	bad := func(format string, args ...any) error {
		return fmt.Errorf("rank %d: queue pair: %s: %w", e.id.Rank, fmt.Sprintf(format, args...),
			transport.ErrInvalid)
	}
	if !ok || domain.dev != e.dev || domain.closed {
		return bad("not a protection domain of this device")
	}
	for _, x := range []transport.CQ{cfg.SendCQ, cfg.RecvCQ} {
		if c, ok := x.(*cq); !ok || c.dev != e.dev || c.closed {
			return bad("not a completion queue of this device")
		}
	}
	if !sameLock(cfg.SendCQ.(*cq).handler, cfg.RecvCQ.(*cq).handler) {
		return fmt.Errorf("rank %d: %w", e.id.Rank, errLocks)
	}
	switch {
	case cfg.SendWR < 1 || cfg.SendWR > attr.MaxQPDepth:
		return bad("%d send requests are not within 1…%d", cfg.SendWR, attr.MaxQPDepth)
	case cfg.RecvWR < 0 || cfg.RecvWR > attr.MaxQPDepth:
		return bad("%d receives are not within 0…%d", cfg.RecvWR, attr.MaxQPDepth)
	case cfg.Reads < 0 || cfg.Reads > attr.MaxReads:
		return bad("%d Reads are not within 0…%d", cfg.Reads, attr.MaxReads)
	case len(private) > attr.MaxPrivate:
		return bad("%d bytes of private data, at most %d", len(private), attr.MaxPrivate)
	}
	return nil
}

// commit connects two prepared sides, unless a lower rank has an attempt.
func (a *attempt) commit() {
	n := a.from.dev.net
	to, err := a.target()
	if err != nil {
		a.fail(nil, err)
		return
	}
	if n.mutant != twoOnCollision {
		if a.from.live(a.rank) != nil { // the other side's attempt came first
			n.counters.Crossed++
			a.end(nil)
			return
		}
		for _, r := range n.attempts {
			if r.from == to && r.rank == a.self() && !r.dropped && r.phase != phaseYielded &&
				r.from.id.Rank < a.from.id.Rank {
				n.counters.Crossed++
				a.phase, a.rival = phaseYielded, r
				return
			}
		}
	}
	mine, theirs := a.from.newQP(a.rank, to, a.shape[0]), to.newQP(a.self(), a.from, a.shape[1])
	mine.peer, theirs.peer = theirs, mine
	if n.mutant != depthIsOnesOwn {
		mine.reads = min(mine.reads, theirs.reads)
		theirs.reads = mine.reads
	}
	a.connect([2]*endpoint{a.from, to}, [2]*qp{mine, theirs})
	if mine.handed {
		a.end(nil)
	} else {
		a.end(a.dropErr())
	}
}

// connect hands over the ends of a connection, in an order drawn from the seed.
func (a *attempt) connect(sides [2]*endpoint, ends [2]*qp) {
	first := a.from.dev.net.rng.IntN(2)
	for _, i := range [2]int{first, 1 - first} {
		e, q := sides[i], ends[i]
		err := e.call(func() error {
			e.acceptor.Connected(transport.PeerAt(q.peerRank, q.port), q, a.private[1-i])
			return nil
		})
		if err != nil { // closed meanwhile: nobody has this end
			q.abort(err)
			q.detach()
			continue
		}
		q.handed = true
		q.signal()
	}
}

func (e *endpoint) newQP(rank uint32, other *endpoint, cfg transport.QPConfig) *qp {
	d := e.dev
	d.lastQPN++
	e.begun++
	q := &qp{
		net: d.net, dev: d, cfg: cfg, num: d.lastQPN, peerRank: transport.RankOf(rank),
		port: transport.PortOf(rank), local: d.addr(),
		remote: other.dev.addr(),
		rng:    rand.New(rand.NewPCG(d.net.seed, uint64(d.id)<<32|uint64(rank)<<12|uint64(e.begun))),
		reads:  cfg.Reads,
		state:  transport.StateReady,
	}
	if q.window = 16 + q.rng.IntN(48); q.net.costs != nil {
		q.window = math.MaxInt
	}
	d.qps[q.num] = q
	e.connected[rank] = q
	q.pd().users++
	q.eachCQ(func(c *cq) { c.qps = append(c.qps, q) })
	return q
}
