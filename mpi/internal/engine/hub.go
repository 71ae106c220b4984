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

// Hub is what a rank has once, however many endpoints it has: who it is, its devices and their connection
// management, the memory of the program, the goroutines that sleep in calls, which ranks have failed, and the
// heartbeat. Each endpoint is an Engine. Endpoint k talks with endpoint k of other ranks, through port k of
// the devices. All but the first are made on first use.
//
// Order of locks: making, then the moving of a completion handler, then the lock of one engine, then one of
// the leaves: those of failed, memory, sleepers and queues. No goroutine has the locks of two engines, or two
// leaves. Builds for the race detector check that (lockassert_on.go).
type Hub struct {
	rank    int
	size    int
	log     *slog.Logger
	conf    Config
	devices []*device

	making         orderedMutex // held while an engine is made, and by Destroy
	engines        [MaxEndpoints]atomic.Pointer[Engine]
	several        atomic.Bool // more than one engine has been made
	oversubscribed atomic.Bool // more of them than the rank has cores: see noteOversubscribed
	closed         bool        // under making: no engine is made any more

	memory     memory
	failed     failedRanks
	sleepers   sleepers
	queues     cqSet
	connects   chan struct{} // of connects that run at once
	heartbeat  heartbeat
	describing chan struct{} // has a token while somebody asks for descriptions; not a mutex, for that sleeps
}

// device is what a rank has of a Fabric.
type device struct {
	Fabric
	name     string // of the provider
	endpoint transport.Endpoint
}

// NewHub makes a rank with its first endpoint, and starts listening. The devices belong to it from then on.
func NewHub(c Config) (*Hub, error) {
	h := &Hub{
		rank: int(c.Identity.Rank), size: int(c.Identity.Size), log: c.Log, conf: c,
		connects: make(chan struct{}, connectsAtOnce), describing: make(chan struct{}, 1),
	}
	h.orderLocks()
	h.conf.Endpoints = h.endpointsOf(&c)
	h.conf.Identity.Ports = h.conf.Endpoints
	if h.conf.Recorder == nil {
		h.conf.Recorder = recorder.New()
	}
	h.sleepers.wakeUp, h.sleepers.turns = h.queues.wake, c.Turns
	h.failed.hub, h.failed.report = h, c.PeerLost
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

// endpointsOf is how many endpoints the rank has. Several cannot be where goroutines take turns, or where a
// goroutine cannot sleep in several queues.
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

// open makes the first engine, and has every device listen.
func (h *Hub) open() error {
	h.making.Lock()
	defer h.making.Unlock()
	for _, f := range h.conf.Fabrics {
		h.devices = append(h.devices, &device{Fabric: f, name: f.Device.Query().Provider})
	}
	var err error
	if h.memory.pd, err = h.devices[0].Device.AllocPD(); err != nil {
		return err
	}
	e, err := h.make(0)
	if err != nil {
		return err
	}
	e.mu.Lock() // an early peer's callback waits until the endpoints of the devices are known
	defer e.mu.Unlock()
	for i, d := range h.devices {
		if d.endpoint, err = d.Device.Listen(h.conf.Identity, &acceptor{h, i}); err != nil {
			return err
		}
	}
	return nil
}

// Several reports whether endpoints other than the first are in use.
func (h *Hub) Several() bool { return h.several.Load() }

// Endpoints is how many endpoints the rank has, made or not.
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
		e.recorder = recorder.New()
	}
	e.init(h.conf)
	if err := e.open(h.conf); err != nil {
		return nil, errors.Join(err, e.abandon())
	}
	h.engines[number].Store(e)
	if number > 0 {
		h.several.Store(true)
		h.failed.tell(e)
		h.queues.wake() // who sleeps has to sleep in the new queues too
		h.noteOversubscribed()
	}
	return e, nil
}

// noteOversubscribed takes note that more endpoints are in use than the rank has cores. Goroutines that wait give up their
// core soon then: what they wait for may need another goroutine, which waits for a core. making is held.
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

// first is the endpoint that always is there.
func (h *Hub) first() *Engine { return h.engines[0].Load() }

// pollOthers makes a pass at every other endpoint than e whose lock is free. No lock is held. Whoever has the
// lock makes passes there, or leaves it soon.
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

// othersReadyToSleep has the queues of every other endpoint than e end the next sleep. It returns false if
// there is more to do at some endpoint at once. No lock is held.
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

// Rank is the world rank.
func (h *Hub) Rank() int { return h.rank }

// Size is the number of ranks.
func (h *Hub) Size() int { return h.size }

// Addr is the address to publish to the peers for a provider, "" if the rank has no fabric of that.
func (h *Hub) Addr(provider string) string {
	for _, d := range h.devices {
		if d.name == provider {
			return d.endpoint.Addr()
		}
	}
	return ""
}

// Hooked reports whether the rank has a hook.
func (h *Hub) Hooked() bool { return h.conf.Hook != nil }
