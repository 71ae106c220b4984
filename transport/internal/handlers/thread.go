package handlers

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/runqueue"
)

// pollerThread is a thread that serves the completion queues of the handlers of one core (N6, N7). It sleeps
// in a poller that watches the pollers of these queues: traffic, CQ.Wake and a raised event all show there. A
// queue that shows gets turns until one finds nothing.
type pollerThread struct {
	core     int // -1: any
	handlers int // guarded by Set.mu
	poller   *sys.Poller
	stopping atomic.Bool
	done     chan struct{}

	mu   sync.Mutex
	cqs  map[int32]Queue // by the number under which the poller knows them
	last int32

	order runqueue.Queue[Queue] // these are the thread's own
	since int                   // turns since the poller was last asked
	ready [64]int32

	uncounted transport.HandlerCounts // of handlers that nobody counts
}

// turnsPerPoll is how many turns go between two polls of who else has something.
const turnsPerPoll = transport.BulkAfter

// startPollerThread starts a thread on a core.
func startPollerThread(core int) (*pollerThread, error) {
	poller, err := sys.NewPoller()
	if err != nil {
		return nil, fmt.Errorf("completion handler: %w", err)
	}
	p := &pollerThread{core: core, poller: poller, done: make(chan struct{}), cqs: map[int32]Queue{}}
	pinned := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if core >= 0 {
			err := sys.SetAffinity([]int{core})
			pinned <- err
			if err != nil {
				return
			}
		} else {
			pinned <- nil
		}
		p.run()
	}()
	if err := <-pinned; err != nil {
		<-p.done
		poller.Close()
		cores, _ := sys.Affinity()
		return nil, fmt.Errorf("%w: a completion handler on core %d, which this process may not use (it "+
			"has %v): %w", transport.ErrInvalid,
			core, cores, err)
	}
	return p, nil
}

// stop ends the thread, when it has delivered what has been raised.
func (p *pollerThread) stop() {
	p.stopping.Store(true)
	p.poller.Wake()
	<-p.done
	p.poller.Close()
}

// take has the thread serve a queue.
func (p *pollerThread) take(c Queue) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	if err := p.poller.Nest(c.Poller(), p.last); err != nil {
		return fmt.Errorf("completion handler: %w", err)
	}
	c.Handling().served = p.last
	p.cqs[p.last] = c
	return nil
}

// release ends that. A turn of the queue may be due yet: it will find that the queue is another's.
func (p *pollerThread) release(c Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cqs, c.Handling().served)
	p.poller.Unnest(c.Poller())
}

func (p *pollerThread) run() {
	for {
		if p.order.OnlyBulk() {
			p.pollReady(0)
		}
		c, ok := p.order.Next()
		switch {
		case ok:
			p.serve(c)
			if p.since++; p.since == turnsPerPoll {
				p.pollReady(0)
			}
		case p.stopping.Load():
			p.finish()
			return
		default:
			p.pollReady(-1)
		}
	}
}

// pollReady asks the poller whose turn it is, and waits for that for up to d (d < 0: for ever).
func (p *pollerThread) pollReady(d time.Duration) {
	p.since = 0
	n, err := p.poller.Await(p.ready[:], d)
	if err != nil {
		panic(fmt.Sprintf("completion handler: %v", err)) // the poller is ours, and open
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range p.ready[:n] {
		if c := p.cqs[id]; c != nil { // else it has been given away since
			if h := c.Handling().handler.Load(); h != nil && h.proc == p {
				p.order.Add(h.conf.Class, c)
			}
		}
	}
}

// finish gives each queue that has something one more turn.
func (p *pollerThread) finish() {
	p.mu.Lock()
	polls := 1 + len(p.cqs)/len(p.ready)
	p.mu.Unlock()
	for range polls {
		p.pollReady(0)
		for c, ok := p.order.Next(); ok; c, ok = p.order.Next() {
			p.serve(c)
		}
	}
}

// serve gives a queue its turn: a pass, and the event if one has been raised. It has another turn wait if
// there may be more.
func (p *pollerThread) serve(c Queue) {
	h := c.Handling().handler.Load()
	if h == nil || h.proc != p {
		return
	}
	h.conf.Lock.Lock()
	next := p.serveLocked(c, h)
	h.conf.Lock.Unlock()
	if next != turnParked && !p.stopping.Load() {
		p.order.Add(h.conf.Class, c)
	}
	if next == turnIdle {
		sys.Yield() // the consumer may want the lock
	}
}

// turnEnd is how a turn ended.
type turnEnd uint8

const (
	turnBusy turnEnd = iota // there may be more
	turnIdle                // there was nothing, and the handler spins
	// there was nothing; the poller tells when there is, or somebody else has the queue now
	turnParked
)

func (p *pollerThread) serveLocked(c Queue, h *Handler) turnEnd {
	st := c.Handling()
	if st.handler.Load() != h {
		return turnParked // given away while we waited for the lock; whoever has it has been told
	}
	counts := h.conf.Counts
	if counts == nil {
		counts = &p.uncounted
	}
	if st.parked {
		counts.Wakes++
	}
	st.unpark(c)
	st.serving = true
	counts.Passes++
	found := c.Pass()
	if !found && !st.event && p.spins(st, h) {
		st.serving = false
		return turnIdle
	}
	if !found && !st.event {
		c.Poller().Drain()
		c.Arm()
		counts.Passes++
		found = c.Pass() // what came before the poller watched, or before Wake was heard
		if !found && !st.event {
			st.park(c)
		}
	}
	if found || st.event {
		st.idle = time.Time{}
	}
	end := turnBusy
	switch {
	case st.event:
		st.event = false
		h.conf.Complete(h.id, c) // what this raises is found in the next turn
	case !found:
		end = turnParked
	}
	if st.handler.Load() == h {
		st.serving = false
	}
	return end
}

// spins reports whether the handler goes on making passes of a queue that has nothing.
func (p *pollerThread) spins(st *Handling, h *Handler) bool {
	if h.conf.Spin == 0 || p.stopping.Load() {
		return false
	}
	now := time.Now()
	if st.idle.IsZero() {
		st.idle = now
	}
	return now.Sub(st.idle) < h.conf.Spin
}
