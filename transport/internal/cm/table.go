package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// ErrCollision says that another connection between the two ranks stays: wait for it.
var ErrCollision = fmt.Errorf("%w: another connection is under way", transport.ErrRefused)

// ErrBusy says that the peer cannot accept the connection at the moment: try again.
var ErrBusy = fmt.Errorf("%w: the peer is busy", transport.ErrRefused)

// RetryPause is the pause before a rejected connection is tried again. The peer's own may be made meanwhile.
const RetryPause = 100 * time.Millisecond

// QueuePair is a connection that a Table keeps.
type QueuePair interface {
	comparable
	Released() bool // by its acceptor; may be called from any goroutine
}

// Table keeps the state of an endpoint's connection to each peer. Its methods may be called from any
// goroutine.
type Table[Q QueuePair] struct {
	ctx    context.Context // ends with the endpoint
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool // no call may begin
	peers  map[uint32]*Peer[Q]
}

// Peer is the state of one peer in a Table.
type Peer[Q QueuePair] struct {
	// Callbacks is held during Acceptor.Prepare and Acceptor.Connected, so that they run one at a time for
	// one peer. The end that accepts a connection holds it from the one to the other.
	Callbacks sync.Mutex

	// The table's lock guards the rest.
	collision Collision
	qp        Q             // in state Connected, until it is released
	changed   chan struct{} // closed when the state changes
}

// NewTable makes a table. The caller closes it.
func NewTable[Q QueuePair]() *Table[Q] {
	t := &Table[Q]{peers: map[uint32]*Peer[Q]{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Context ends when the table is closed.
func (t *Table[Q]) Context() context.Context { return t.ctx }

// Go runs f on a goroutine that Close waits for.
func (t *Table[Q]) Go(f func()) { t.wg.Go(f) }

// Close closes the endpoint's listeners, cancels every call, lets no other begin, and returns when every call
// and every goroutine of Go has ended.
func (t *Table[Q]) Close(listeners func() error) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	err := listeners()
	t.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Begin begins a call that makes a connection. Its context ends with the table too. The caller calls end when
// the call is over; Close waits for that.
func (t *Table[Q]) Begin(ctx context.Context) (_ context.Context, end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, transport.ErrDeviceGone
	}
	t.wg.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	return ctx, func() { stop(); cancel(); t.wg.Done() }, nil
}

// Cause returns why a call's context has ended.
func (t *Table[Q]) Cause(ctx context.Context) error {
	if t.ctx.Err() != nil {
		return transport.ErrDeviceGone
	}
	return context.Cause(ctx)
}

// Connect returns when this rank is connected to the peer at addr: by an existing connection, by one that the
// peer begins, or by dial. When dial returns ErrCollision or ErrBusy, Connect tries again until the context
// ends; its error then includes that of the last attempt. dial calls Commit before its connection is final.
func (t *Table[Q]) Connect(ctx context.Context, id transport.Identity, peer uint32, addr string,
	dial func(context.Context, *Peer[Q]) (Q, error)) error {
	if err := id.CheckPeer(peer); err != nil {
		return err
	}
	if err := t.connect(ctx, peer, dial); err != nil {
		return fmt.Errorf("connecting to rank %d at %s: %w", transport.RankOf(peer), addr, err)
	}
	return nil
}

func (t *Table[Q]) connect(ctx context.Context, peer uint32,
	dial func(context.Context, *Peer[Q]) (Q, error)) error {
	ctx, end, err := t.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	var last error
	for {
		p, state, ours, changed := t.dial(peer)
		if state == Connected {
			return nil
		}
		var pause <-chan time.Time
		if ours {
			q, err := dial(ctx, p)
			decides, next := t.Dialed(p, q)
			switch {
			case err == nil:
				return nil
			case !decides:
				continue
			case ctx.Err() != nil:
				if !errors.Is(err, ctx.Err()) {
					last = err
				}
				return t.ended(ctx, last)
			case !errors.Is(err, ErrCollision) && !errors.Is(err, ErrBusy):
				return err
			}
			last = err
			changed, pause = next, time.After(RetryPause)
		}
		select {
		case <-changed:
		case <-pause:
		case <-ctx.Done():
			return t.ended(ctx, last)
		}
	}
}

// ended returns the error of a call whose context has ended; last is the error of its last attempt, or nil.
func (t *Table[Q]) ended(ctx context.Context, last error) error {
	err := t.Cause(ctx)
	if last != nil && !errors.Is(err, transport.ErrDeviceGone) {
		err = fmt.Errorf("%w; the last attempt: %w", err, last)
	}
	return err
}

func (t *Table[Q]) dial(peer uint32) (p *Peer[Q], state State, ours bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p = t.peer(peer)
	state = p.collision.State()
	return p, state, p.collision.Dial(), p.changed
}

// Dial reports whether to begin a connection to a peer now. If so, the caller must call Dialed when it is
// made or has failed.
func (t *Table[Q]) Dial(peer uint32) (*Peer[Q], bool) {
	p, _, ours, _ := t.dial(peer)
	return p, ours
}

// Current returns the queue pair to a peer, if there is one, the state of the connection, and a channel that
// is closed at the next change.
func (t *Table[Q]) Current(peer uint32) (q Q, state State, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peer(peer)
	return p.qp, p.collision.State(), p.changed
}

func (t *Table[Q]) peer(peer uint32) *Peer[Q] {
	p := t.peers[peer]
	if p == nil {
		p = &Peer[Q]{changed: make(chan struct{})}
		t.peers[peer] = p
	}
	return p
}

// Commit notes that the peer has accepted our connection; false if the peer's own was accepted here
// meanwhile.
func (t *Table[Q]) Commit(p *Peer[Q]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.collision.Commit()
}

// Request reports whether to accept a connection that a peer has begun. If so, the caller must call Accepted
// when it is made or has failed.
func (t *Table[Q]) Request(me, peer uint32) (*Peer[Q], bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peer(peer)
	return p, p.collision.Request(me, peer)
}

// Dialed notes how our own connection ended: with a queue pair, or with none. It reports whether this attempt
// was still the current one, and returns a channel that is closed at the next change.
func (t *Table[Q]) Dialed(p *Peer[Q], q Q) (decides bool, changed <-chan struct{}) {
	changed = t.step(p, q, func(ok bool) { decides = p.collision.Dialed(ok) })
	return decides, changed
}

// Accepted notes how the peer's connection ended: with a queue pair, or with none.
func (t *Table[Q]) Accepted(p *Peer[Q], q Q) { t.step(p, q, p.collision.Accepted) }

// step changes the state and wakes waiting calls. A queue pair that its acceptor has released already counts
// as none.
func (t *Table[Q]) step(p *Peer[Q], q Q, change func(ok bool)) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	var none Q
	ok := q != none && !q.Released()
	if change(ok); ok {
		p.qp = q
	}
	return p.announce()
}

// announce wakes the calls that wait for a change. The table's lock is held.
func (p *Peer[Q]) announce() <-chan struct{} {
	close(p.changed)
	p.changed = make(chan struct{})
	return p.changed
}

// Released notes that the acceptor has released a queue pair: the two ranks can be connected again.
func (t *Table[Q]) Released(peer uint32, q Q) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.peers[peer]; p != nil && p.qp == q {
		var none Q
		p.qp = none
		p.collision.Released()
		p.announce()
	}
}
