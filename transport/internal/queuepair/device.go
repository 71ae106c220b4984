package queuepair

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// maxCQDepth is the maximum depth of a completion queue.
const maxCQDepth = 1 << 20

// Device is the common part of a device: it owns handlers, regions, completion queues and the endpoint.
type Device struct {
	handlers.Verbs

	Handlers int          // maximum number at once
	Regions  *verbs.Table // set by the provider

	handlers *handlers.Set
	lastQP   atomic.Uint32
	closed   atomic.Bool

	mu  sync.Mutex // guards what follows
	cqs []*CQ
	end transport.Endpoint
}

// Init makes the device's set of handlers.
func (d *Device) Init() error {
	cores, err := handlers.Cores()
	if err != nil {
		return err
	}
	d.Handlers = cores * handlers.PerCore
	d.handlers = handlers.NewSet(d.Handlers)
	d.Verbs = d.handlers.Verbs()
	return nil
}

// Closed reports whether Close has been called.
func (d *Device) Closed() bool { return d.closed.Load() }

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (transport.PD, error) { return d.Regions.AllocPD() }

// NewQPN returns the number for a new queue pair.
func (d *Device) NewQPN() transport.QPN { return transport.QPN(d.lastQP.Add(1)) }

// CheckCQ returns an error if the device cannot have a completion queue of this depth.
func (d *Device) CheckCQ(depth int) error {
	if d.closed.Load() {
		return transport.ErrDeviceGone
	}
	if depth < 1 || depth > maxCQDepth {
		return fmt.Errorf("%w: a completion queue of depth %d; 1 to %d are possible", transport.ErrInvalid,
			depth, maxCQDepth)
	}
	return nil
}

// AddCQ adds c, the common part of a new completion queue, and gives the queue to a handler or to none. If it
// fails, it closes the poller.
func (d *Device) AddCQ(c *CQ, p ProviderCQ, poller *sys.Poller, depth int, id transport.HandlerID) error {
	c.dev, c.provider, c.poller, c.completions = d, p, poller, verbs.NewCompletionRing(depth)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.handlers.Add(p, id); err != nil {
		c.closePoller()
		return err
	}
	d.cqs = append(d.cqs, c)
	return nil
}

// EachCQ yields the completion queues.
func (d *Device) EachCQ(yield func(*CQ) bool) {
	d.mu.Lock()
	cqs := slices.Clone(d.cqs)
	d.mu.Unlock()
	for _, c := range cqs {
		if !yield(c) {
			return
		}
	}
}

func (d *Device) remove(c *CQ) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cqs = slices.DeleteFunc(d.cqs, func(o *CQ) bool { return o == c })
}

// Prepare calls the acceptor's Prepare for a peer, and checks the result.
func (d *Device) Prepare(a transport.Acceptor, peer uint32) (transport.QPConfig, []byte, error) {
	conf, private, err := a.Prepare(peer)
	if limit := d.Regions.Limits().MaxPrivate; err == nil && len(private) > limit {
		err = fmt.Errorf("%w: %d bytes of private data; at most %d are possible", transport.ErrInvalid,
			len(private), limit)
	}
	if err == nil {
		err = d.checkConfig(&conf)
	}
	return conf, private, err
}

// checkConfig returns an error if no queue pair of this device can have this shape.
func (d *Device) checkConfig(conf *transport.QPConfig) error {
	p, ok := conf.PD.(*verbs.PD)
	send, recv := coreOf(conf.SendCQ), coreOf(conf.RecvCQ)
	switch {
	case !ok || send == nil || recv == nil || !p.Of(d.Regions) || send.dev != d || recv.dev != d:
		return fmt.Errorf("%w: the queue pair's domain and queues are not of this device",
			transport.ErrInvalid)
	case !send.handling.SameLock(&recv.handling):
		return handlers.ErrLocks
	}
	attr := d.Regions.Limits()
	return verbs.CheckShape(conf, attr.MaxQPDepth, attr.MaxReads)
}

// SetEndpoint sets the device's endpoint, which begin makes. A device has one.
func (d *Device) SetEndpoint(begin func() (transport.Endpoint, error)) (transport.Endpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed.Load():
		return nil, transport.ErrDeviceGone
	case d.end != nil:
		return nil, fmt.Errorf("%w: the device has an endpoint", transport.ErrInvalid)
	}
	e, err := begin()
	if err == nil {
		d.end = e
	}
	return e, err
}

// Close closes everything that belongs to the device. last, if not nil, is called at the end.
func (d *Device) Close(last func() error) error {
	if d.closed.Swap(true) {
		return nil
	}
	var errs []error
	d.mu.Lock()
	end := d.end
	d.mu.Unlock()
	if end != nil {
		errs = append(errs, end.Close())
	}
	for c := range d.EachCQ {
		c.endAll()
	}
	d.handlers.Stop()
	for c := range d.EachCQ {
		c.provider.Dispose()
	}
	errs = append(errs, d.Regions.Close())
	if last != nil {
		errs = append(errs, last())
	}
	return errors.Join(errs...)
}
