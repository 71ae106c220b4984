package sim

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/runqueue"
)

// simulatedCores is the number of cores that a device pretends to have for handlers.
const simulatedCores = 4

// handler is a completion handler. The goroutine of its core polls for it, so a run depends on the schedule
// of goroutines, as with a goroutine for each rank.
type handler struct {
	id   transport.HandlerID
	conf transport.HandlerConfig
	core *core
	cqs  int
}

// core is a goroutine that serves the handlers of one core.
type core struct {
	net      *Network
	number   int
	handlers int
	cqs      []*cq // of its handlers
	stopping bool
	wake     chan struct{}
	done     chan struct{}
	order    runqueue.Queue[*cq] // used by its goroutine alone
}

func (d *device) SetCompletionHandler(c transport.HandlerConfig) (transport.HandlerID, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	if !reflect.TypeOf(c.Lock).Comparable() {
		return 0, fmt.Errorf("%w: a Lock of type %T, which cannot be compared: pass a pointer",
			transport.ErrInvalid, c.Lock)
	}
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if err := d.alive(); err != nil {
		return 0, fmt.Errorf("register a completion handler: %w", err)
	}
	live := 0
	for _, h := range d.handlers {
		if h != nil {
			live++
		}
	}
	switch {
	case live == attr.Handlers, live == 1 && d.net.mutant == oneHandler:
		return 0, fmt.Errorf("%d completion handlers are registered, and no more are possible: %w", live,
			transport.ErrInvalid)
	case c.Core >= simulatedCores && d.net.mutant != anyCore:
		return 0, fmt.Errorf("completion handler on core %d of %d: %w", c.Core, simulatedCores,
			transport.ErrInvalid)
	}
	h := &handler{id: transport.HandlerID(len(d.handlers) + 1), conf: c, core: d.coreOf(c.Core)}
	h.core.handlers++
	d.handlers = append(d.handlers, h)
	return h.id, nil
}

func (d *device) coreOf(number int) *core {
	for _, k := range d.cores {
		if number >= 0 && k.number == number {
			return k
		}
	}
	k := &core{net: d.net, number: number, wake: make(chan struct{}, 1), done: make(chan struct{})}
	d.cores = append(d.cores, k)
	go k.run()
	return k
}

func (d *device) handlerOf(id transport.HandlerID) (*handler, error) {
	if id == 0 {
		return nil, nil
	}
	if int(id) > len(d.handlers) || d.handlers[id-1] == nil {
		return nil, fmt.Errorf("no completion handler %d: %w", id, transport.ErrInvalid)
	}
	return d.handlers[id-1], nil
}

func (d *device) ModifyCQ(q transport.CQ, id transport.HandlerID) error {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	c, ok := q.(*cq)
	if !ok || c.dev != d || c.closed {
		return fmt.Errorf("not a completion queue of this device: %w", transport.ErrInvalid)
	}
	if err := d.alive(); err != nil {
		return err
	}
	return d.give(c, id)
}

// give assigns a completion queue to a handler, or to none.
func (d *device) give(c *cq, id transport.HandlerID) error {
	to, err := d.handlerOf(id)
	if err != nil {
		return err
	}
	from := c.handler
	if from == to {
		return nil
	}
	if to != nil {
		for _, q := range c.qps {
			var locks error
			q.eachCQ(func(o *cq) {
				if o != c && !sameLock(to, o.handler) {
					locks = errLocks
				}
			})
			if locks != nil {
				return locks
			}
		}
		if from == nil && c.waiters > 0 {
			return fmt.Errorf("a goroutine waits on the completion queue: %w", transport.ErrInvalid)
		}
	}
	if from != nil {
		from.cqs--
		from.core.cqs = slices.DeleteFunc(from.core.cqs, func(o *cq) bool { return o == c })
	}
	if c.handler = to; to != nil {
		to.cqs++
		if d.net.mutant == lastQueueOnly {
			to.core.cqs = nil
		}
		to.core.cqs = append(to.core.cqs, c)
	}
	if d.net.mutant == moveForgets {
		c.event, c.requested = false, 0
	}
	c.signal()
	return nil
}

var errLocks = fmt.Errorf("a queue pair's completion queues have handlers with different locks: %w",
	transport.ErrInvalid)

// handledBy returns the handler of the queue; 0 for none.
func (c *cq) handledBy() transport.HandlerID {
	if c.handler == nil {
		return 0
	}
	return c.handler.id
}

// sameLock reports whether two queues of a queue pair may have these handlers.
func sameLock(a, b *handler) bool { return a == nil || b == nil || a.conf.Lock == b.conf.Lock }

func (d *device) CloseHandler(id transport.HandlerID) error {
	idle, err := d.removeHandler(id)
	if idle != nil {
		idle.stop()
	}
	return err
}

// removeHandler removes a handler, and returns its core if it has no other.
func (d *device) removeHandler(id transport.HandlerID) (idle *core, err error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	h, err := d.handlerOf(id)
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, fmt.Errorf("no completion handler 0: %w", transport.ErrInvalid)
	case h.cqs > 0:
		return nil, fmt.Errorf("completion handler %d has %d completion queues: %w", id, h.cqs,
			transport.ErrInvalid)
	}
	d.handlers[id-1] = nil
	if h.core.handlers--; h.core.handlers > 0 || !slices.Contains(d.cores, h.core) {
		return nil, nil // others use the core, or the device's Close ends it
	}
	d.cores = slices.DeleteFunc(d.cores, func(k *core) bool { return k == h.core })
	return h.core, nil
}

// stop ends the goroutine after it has delivered all raised events.
func (k *core) stop() {
	k.net.mu.Lock()
	k.stopping = true
	k.signal()
	k.net.mu.Unlock()
	<-k.done
}

func (k *core) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *core) run() {
	defer close(k.done)
	for {
		stopping := k.pollReady()
		c, ok := k.order.Next()
		switch {
		case stopping:
			for ; ok && k.net.mutant != endsUndelivered; c, ok = k.order.Next() { // each once more
				k.serve(c)
			}
			return
		case ok:
			k.serve(c)
			runtime.Gosched()
		default:
			<-k.wake
		}
	}
}

// pollReady queues the completion queues that have work.
func (k *core) pollReady() (stopping bool) {
	k.net.mu.Lock()
	defer k.net.mu.Unlock()
	for _, c := range k.cqs {
		if c.event || c.busy() {
			class := c.handler.conf.Class
			if k.net.mutant == classIgnored {
				class = transport.LowLatency
			}
			k.order.Add(class, c)
		}
	}
	return k.stopping
}

// serve gives a completion queue its turn: a pass, and the event if one has been raised.
func (k *core) serve(c *cq) {
	k.net.mu.Lock()
	h := c.handler
	k.net.mu.Unlock()
	if h == nil || h.core != k {
		return
	}
	h.conf.Lock.Lock()
	defer h.conf.Lock.Unlock()
	k.net.mu.Lock()
	event := false
	if c.handler == h { // it may have been reassigned while we waited for the lock
		c.pass()
		if n := h.conf.Counts; n != nil { // a sleep precedes every pass
			n.Wakes++
			n.Passes++
		}
		event, c.event = c.event, false
	}
	k.net.mu.Unlock()
	if k.net.mutant == oneAtATime {
		k.net.turn.Lock()
		defer k.net.turn.Unlock()
	}
	if event && k.net.mutant != loseEvents {
		h.conf.Complete(h.id, c)
	}
}

// busy reports whether a pass could do anything.
func (c *cq) busy() bool {
	if c.closed || c.dev.gone {
		return false
	}
	for _, q := range c.qps {
		if q.busy() {
			return true
		}
	}
	return false
}

func (c *cq) RequestNotify(n transport.Notify) error {
	if err := n.Check(); err != nil {
		return err
	}
	c.dev.net.mu.Lock()
	defer c.dev.net.mu.Unlock()
	c.requested |= n
	return nil
}

// match raises the event if it was asked for.
func (c *cq) match(n transport.Notify) {
	if c.requested&n == 0 {
		return
	}
	if c.dev.net.mutant != eventsRepeat {
		c.requested = 0
	}
	c.raise()
}

// raise makes the handler deliver an event.
func (c *cq) raise() {
	c.event = true
	c.signal()
}

// end cuts the queue pairs of a completion queue when its device is closed: posted requests complete, and can
// be polled.
func (c *cq) end() {
	c.dev.net.mu.Lock()
	h := c.handler
	c.dev.net.mu.Unlock()
	if h != nil {
		h.conf.Lock.Lock()
		defer h.conf.Lock.Unlock()
	}
	d := c.dev
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	for _, q := range slices.Clone(c.qps) {
		if q.final() { // after an orderly close the peer still gets what is on the wire
			continue
		}
		q.cutPeer(fmt.Errorf("rank %d at %s closed its device: %w", d.rank(), d.addr(),
			transport.ErrPeerLost))
		q.fail(nil, transport.StatusFlushed, d.goneErr())
	}
}
