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
// in a poller that watches the pollers of these queues: traffic, CQ.Wake and raised events make them ready. A
// ready queue gets turns until one finds nothing.
type pollerThread struct {
	core     int // -1: any
	handlers int // guarded by Set.mu
	poller   *sys.Poller
	stopping atomic.Bool
	done     chan struct{}

	mu   sync.Mutex
	cqs  map[int32]Queue // by the number under which the poller knows them
	last int32

	order runqueue.Queue[Queue] // this and the following are used by the thread alone
	since int                   // turns since the last poll of the poller
	ready [64]int32

	uncounted transport.HandlerCounts // of handlers without Counts
}

// turnsPerPoll is the number of turns between two polls for other ready queues.
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
			before, err := sys.Affinity()
			if err == nil {
				err = sys.SetAffinity([]int{core})
			}
			pinned <- err
			if err != nil {
				return
			}
			// If this is the process's first thread, it outlives the goroutine: restore its mask.
			defer sys.SetAffinity(before)
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

// stop ends the thread after it has delivered the events that were raised.
func (p *pollerThread) stop() {
	p.stopping.Store(true)
	p.poller.Wake()
	<-p.done
	p.poller.Close()
}

// take adds a queue to those that the thread serves, once the queue has a handler of the thread. It returns
// the queue's number here.
func (p *pollerThread) take(c Queue) (number int32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	if err := p.poller.Nest(c.Poller(), p.last); err != nil {
		return 0, fmt.Errorf("completion handler: %w", err)
	}
	p.cqs[p.last] = c
	return p.last, nil
}

// release removes it. A turn of the queue may still be due: it will find that the queue has another handler.
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

// pollReady queues a turn for each ready queue, and waits for one for up to d (d < 0: forever).
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

// finish gives each ready queue one more turn.
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

// serve gives a queue its turn: a pass, and the event if one was raised. It queues another turn if there may
// be more to do.
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

// turnEnd says how a turn ended.
type turnEnd uint8

const (
	turnBusy turnEnd = iota // there may be more
	turnIdle                // there was nothing, and the handler spins
	// there was nothing, and the poller wakes the thread; or the queue has another handler now
	turnParked
)

func (p *pollerThread) serveLocked(c Queue, h *Handler) turnEnd {
	st := c.Handling()
	if st.handler.Load() != h {
		return turnParked // given away while we waited for the lock; its new handler was woken
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
		found = c.Pass() // finds what arrived before the poller watched, or before Drain
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
		h.conf.Complete(h.id, c) // events that this raises are delivered in the next turn
	case !found:
		end = turnParked
	}
	if st.handler.Load() == h {
		st.serving = false
	}
	return end
}

// spins reports whether the handler continues to poll a queue that has nothing.
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
