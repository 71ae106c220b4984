package shm

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-mpi/weft/transport"
)

// handler is a completion handler (N2). Its thread does the work: see processor.go.
type handler struct {
	id   transport.HandlerID
	conf transport.HandlerConfig
	proc *processor
	cqs  int // that it has; guarded by Device.mu
}

var errLocks = fmt.Errorf("%w: a queue pair's completion queues have handlers with different locks", transport.ErrInvalid)

// sameLock tells whether two queues of a queue pair may have these handlers.
func sameLock(a, b *handler) bool { return a == nil || b == nil || a.conf.Lock == b.conf.Lock }

// SetCompletionHandler registers a completion handler and starts it.
func (d *Device) SetCompletionHandler(c transport.HandlerConfig) (transport.HandlerID, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	if !reflect.TypeOf(c.Lock).Comparable() {
		return 0, fmt.Errorf("%w: a Lock of type %T, which cannot be compared: pass a pointer", transport.ErrInvalid, c.Lock)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return 0, transport.ErrDeviceGone
	}
	if n := d.liveHandlers(); n >= d.cores {
		return 0, fmt.Errorf("%w: %d completion handlers are registered; this process may use %d cores, and that many handlers",
			transport.ErrInvalid, n, d.cores)
	}
	p, err := d.processorOf(c.Core)
	if err != nil {
		return 0, err
	}
	h := &handler{id: transport.HandlerID(len(d.handlers) + 1), conf: c, proc: p}
	p.handlers++
	d.handlers = append(d.handlers, h)
	return h.id, nil
}

func (d *Device) liveHandlers() (n int) {
	for _, h := range d.handlers {
		if h != nil {
			n++
		}
	}
	return n
}

// processorOf is the thread of a core: the one that serves it already, or else a new one.
func (d *Device) processorOf(core int) (*processor, error) {
	for _, p := range d.threads {
		if core >= 0 && p.core == core {
			return p, nil
		}
	}
	p, err := startProcessor(core)
	if err != nil {
		return nil, err
	}
	d.threads = append(d.threads, p)
	return p, nil
}

// handlerOf finds a handler by its id. The device's mutex is held.
func (d *Device) handlerOf(id transport.HandlerID) (*handler, error) {
	if id == 0 {
		return nil, nil
	}
	if int(id) > len(d.handlers) || d.handlers[id-1] == nil {
		return nil, fmt.Errorf("%w: no completion handler %d", transport.ErrInvalid, id)
	}
	return d.handlers[id-1], nil
}

// ModifyCQ gives a completion queue to another handler, or to none.
func (d *Device) ModifyCQ(q transport.CQ, id transport.HandlerID) error {
	c, ok := q.(*cq)
	if !ok || c.dev != d {
		return fmt.Errorf("%w: the completion queue is not of this device", transport.ErrInvalid)
	}
	c.admit() // what comes later is looked at then
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return transport.ErrDeviceGone
	}
	return d.give(c, id)
}

// give does what ModifyCQ does. The device's mutex is held.
func (d *Device) give(c *cq, id transport.HandlerID) error {
	to, err := d.handlerOf(id)
	if err != nil {
		return err
	}
	if c.poller == nil {
		return fmt.Errorf("%w: the completion queue is closed", transport.ErrInvalid)
	}
	from := c.handler.Load()
	if from == to {
		return nil
	}
	if to != nil {
		for _, q := range c.qps {
			if !sameLock(to, q.other(c).handler.Load()) {
				return errLocks
			}
		}
		if from == nil && c.arming.waits() {
			return fmt.Errorf("%w: a goroutine waits on the completion queue", transport.ErrInvalid)
		}
	}
	c.serving = false
	if from != nil {
		c.unpark()
		from.proc.release(c)
		from.cqs--
	}
	c.handled = to != nil
	c.listen() // before anybody else drives the queue
	if to != nil {
		if err := to.proc.take(c); err != nil {
			c.handler.Store(nil) // events stay with the queue
			c.handled = false
			c.listen()
			return err
		}
		to.cqs++
	}
	c.handler.Store(to)
	c.Wake() // an event may have been raised; and a new handler has to look
	return nil
}

// other is the completion queue of the other half of a queue pair, or the same one.
func (q *qp) other(c *cq) *cq {
	if c == q.scq {
		return q.rcq
	}
	return q.scq
}

// CloseHandler ends a handler that has no queues.
func (d *Device) CloseHandler(id transport.HandlerID) error {
	idle, err := d.removeHandler(id)
	if idle != nil {
		idle.stop()
	}
	return err
}

// removeHandler takes a handler off, and gives its thread if it has no other.
func (d *Device) removeHandler(id transport.HandlerID) (idle *processor, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h, err := d.handlerOf(id)
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, fmt.Errorf("%w: no completion handler 0", transport.ErrInvalid)
	case h.cqs > 0:
		return nil, fmt.Errorf("%w: completion handler %d has %d completion queues", transport.ErrInvalid, id, h.cqs)
	}
	d.handlers[id-1] = nil
	if h.proc.handlers--; h.proc.handlers > 0 || !slices.Contains(d.threads, h.proc) {
		return nil, nil // others use the thread, or the device's Close ends it
	}
	d.threads = slices.DeleteFunc(d.threads, func(p *processor) bool { return p == h.proc })
	return h.proc, nil
}

// stopHandlers ends the threads of all handlers, when they have delivered what has been raised.
func (d *Device) stopHandlers() {
	d.mu.Lock()
	threads := d.threads
	d.threads = nil
	d.mu.Unlock() // what they still deliver may use the device
	for _, p := range threads {
		p.stop()
	}
}

// end cuts the queue pairs of a completion queue when its device is closed: what is posted completes, and can be polled.
func (c *cq) end() {
	if h := c.handler.Load(); h != nil {
		h.conf.Lock.Lock()
		defer h.conf.Lock.Unlock()
	}
	c.admit()
	for _, q := range slices.Clone(c.qps) {
		q.fail(transport.ErrDeviceGone, transport.StatusFlushed)
	}
}
