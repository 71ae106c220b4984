package engine

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/transport"
)

// MaxEndpoints is the largest number of endpoints of a rank.
const MaxEndpoints = contextid.MaxEndpoints

// Hub is what a rank has once, however many endpoints it has: its number, its devices and their connection
// management, the program's memory from Alloc, the goroutines that sleep in calls, which ranks have failed,
// and the heartbeat. Each endpoint is an Engine. Endpoint k talks with endpoint k of other ranks, through
// connection-manager port k (transport.PortOf), a logical number, not a port of an HCA. All but the first are
// made on first use.
//
// Order of locks: making; completionHandler.moving; the locks that a goroutine keeps while it waits in the
// engine, which are those of Engine.NewLock and sharedMove.leading; the lock of one engine; one of the
// leaves, which are the mutexes of failed, Memory, sleepers, queues and attachedParts, and Window.changing.
// No goroutine holds the locks of two engines, or two leaves. Builds for the race detector check this
// (lockassert_on.go), but not the third level, nor what is taken under the leaves of a window.
type Hub struct {
	rank    int
	size    int
	log     *slog.Logger
	conf    Config
	devices []*device

	making         orderedMutex // held while an engine is made, and by Destroy
	engines        [MaxEndpoints]atomic.Pointer[Engine]
	several        atomic.Bool // more than one engine has been made
	oversubscribed atomic.Bool // more engines than the rank has cores
	closed         bool        // guarded by making: no further engine is made

	Memory     Allocations
	failed     failedRanks
	sleepers   sleepers
	clock      tickClock
	queues     cqSet
	connects   chan struct{} // semaphore: bounds the connects that run at once
	heartbeat  heartbeat
	describing chan struct{} // semaphore: serializes Describe, which sleeps while it holds it
}

// device is a Fabric with the rank's listener. A rank has one device for each Fabric of its Config, and each
// of its engines one fabric for each device.
type device struct {
	Fabric
	name     string // of the provider
	listener transport.Endpoint
}

// NewHub makes a rank with its first endpoint, and starts listening. It takes ownership of the devices.
func NewHub(c Config) (*Hub, error) {
	h := &Hub{
		rank: int(c.Identity.Rank), size: int(c.Identity.Size), log: c.Log, conf: c,
		connects: make(chan struct{}, connectsAtOnce), describing: make(chan struct{}, 1),
	}
	h.queues.parks = c.SpinTime == 0 && c.Turns == nil
	h.orderLocks()
	h.conf.Endpoints = h.endpointsOf(&c)
	h.conf.Identity.Ports = h.conf.Endpoints
	if n := h.conf.Endpoints; len(c.HandlerCores) > n {
		c.Log.Warn("processors of WEFT_CQ_CORES are not used: each endpoint has one (WEFT_ENDPOINTS)",
			"unused", c.HandlerCores[n:], "endpoints", n)
	}
	if h.conf.Recorder == nil {
		h.conf.Recorder = recorder.New()
	}
	h.sleepers.wakeUp, h.sleepers.turns = h.queues.wake, c.Turns
	h.Memory.hub, h.failed.hub, h.failed.report, h.failed.onStop = h, h, c.PeerLost, c.Stopped
	if err := h.open(); err != nil {
		h.queues.close()
		for _, f := range c.Fabrics {
			err = errors.Join(err, f.Device.Close())
		}
		return nil, err
	}
	h.heartbeat.init(h)
	return h, nil
}

// endpointsOf returns how many endpoints the rank has: one if goroutines take turns, or if a goroutine cannot
// sleep in several completion queues.
func (h *Hub) endpointsOf(c *Config) int {
	for _, f := range c.Fabrics {
		if !f.Device.Query().PollableCQs {
			return 1
		}
	}
	if c.Turns != nil {
		return 1
	}
	return min(cmp.Or(c.Endpoints, 1), MaxEndpoints)
}

// open makes the first engine, and starts to listen on every device.
func (h *Hub) open() error {
	h.making.Lock()
	defer h.making.Unlock()
	h.clock.begin()
	for _, f := range h.conf.Fabrics {
		h.devices = append(h.devices, &device{Fabric: f, name: f.Device.Query().Provider})
	}
	var err error
	if h.Memory.pd, err = h.devices[0].Device.AllocPD(); err != nil {
		return err
	}
	e, err := h.make(0)
	if err != nil {
		return err
	}
	e.mu.Lock() // an early peer's callback waits until all listeners are set
	defer e.mu.Unlock()
	for i, d := range h.devices {
		if d.listener, err = d.Device.Listen(h.conf.Identity, &acceptor{h, i}); err != nil {
			return err
		}
	}
	return nil
}

// Several reports whether endpoints other than the first are in use.
func (h *Hub) Several() bool { return h.several.Load() }

// Endpoints returns the number of the rank's endpoints, made or not.
func (h *Hub) Endpoints() int { return h.conf.Endpoints }

// Endpoint returns an endpoint of the rank by its number. It makes the endpoint on its first use.
func (h *Hub) Endpoint(number int) (*Engine, error) {
	if number < 0 || number >= h.conf.Endpoints {
		return nil, fmt.Errorf("%w: endpoint %d of rank %d, which has %d; WEFT_ENDPOINTS must be the same "+
			"for all ranks", transport.ErrInvalid, number, h.rank, h.conf.Endpoints)
	}
	if e := h.engines[number].Load(); e != nil {
		return e, nil
	}
	h.making.Lock()
	defer h.making.Unlock()
	if e := h.engines[number].Load(); e != nil {
		return e, nil
	}
	if h.closed {
		return nil, ErrFinalized
	}
	return h.make(number)
}

// make makes an endpoint. making is held.
func (h *Hub) make(number int) (*Engine, error) {
	e := &Engine{hub: h, number: number, rank: h.rank, size: h.size, log: h.log, hook: h.conf.Hook,
		recorder: h.conf.Recorder, peers: make([]*peer, h.size)}
	if number > 0 {
		e.recorder = h.conf.Recorder.OfEndpoint(number)
	}
	e.init(h.conf)
	if err := e.open(h.conf); err != nil {
		return nil, errors.Join(err, e.abandon())
	}
	h.engines[number].Store(e)
	if number > 0 {
		h.several.Store(true)
		h.failed.tell(e)
		h.queues.wake() // so that the sleeper waits for the new queues too
		h.noteOversubscribed()
	}
	return e, nil
}

// noteOversubscribed records whether more endpoints are in use than the rank has cores. If so, goroutines
// that wait yield their core soon, because the goroutine that they wait for may need it. making is held.
func (h *Hub) noteOversubscribed() {
	made := 0
	for range h.each() {
		made++
	}
	if h.conf.Cores == 0 || made <= h.conf.Cores {
		return
	}
	h.oversubscribed.Store(true)
	for e := range h.each() {
		e.mu.Lock()
		e.waiting.maxLooks = oversubscribedLooks
		e.mu.Unlock()
	}
}

// each yields the engines that have been made, in the order of their numbers.
func (h *Hub) each() iter.Seq[*Engine] {
	return func(yield func(*Engine) bool) {
		for i := range h.engines[:h.conf.Endpoints] {
			if e := h.engines[i].Load(); e != nil && !yield(e) {
				return
			}
		}
	}
}

// first returns endpoint 0, which always exists.
func (h *Hub) first() *Engine { return h.engines[0].Load() }

// pollOthers makes a pass at every endpoint except e whose lock is free. A goroutine that holds a lock makes
// passes there or releases it soon. No lock is held.
func (h *Hub) pollOthers(e *Engine) {
	if !h.several.Load() {
		return
	}
	for o := range h.each() {
		if o == e || !o.mu.TryLock() {
			continue
		}
		if o.stopped == nil && !o.completionHandler.active() {
			o.progress.poll()
		}
		o.mu.Unlock()
	}
}

// othersReadyToSleep arms the completion queues of every endpoint except e, so that traffic ends the next
// sleep. It returns false if some endpoint has more to do at once. No lock is held.
func (h *Hub) othersReadyToSleep(e *Engine) bool {
	quiet := true
	for o := range h.each() {
		if o != e {
			o.mu.Lock()
			quiet = o.waiting.readyToSleepLocked() && quiet
			o.mu.Unlock()
		}
	}
	return quiet
}

// Rank returns the world rank.
func (h *Hub) Rank() int { return h.rank }

// Size returns the number of ranks.
func (h *Hub) Size() int { return h.size }

// Addr returns the address to publish for a provider, or "" if the rank has no fabric of that provider.
func (h *Hub) Addr(provider string) string {
	for _, d := range h.devices {
		if d.name == provider {
			return d.listener.Addr()
		}
	}
	return ""
}

// Hooked reports whether the rank has a hook.
func (h *Hub) Hooked() bool { return h.conf.Hook != nil }
