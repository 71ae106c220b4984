// Package handlers runs the completion handlers of a device (N2): their threads, their completion queues, and
// the events of these queues.
package handlers

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// Handler is a completion handler. Its thread does the work: see thread.go.
type Handler struct {
	id   transport.HandlerID
	conf transport.HandlerConfig
	proc *pollerThread
	cqs  int // completion queues; guarded by Set.mu
}

// ErrLocks is the error of a change that would put the two queues of a queue pair under different locks.
var ErrLocks = fmt.Errorf("%w: a queue pair's completion queues have handlers with different locks",
	transport.ErrInvalid)

// Set holds the handlers of a device.
type Set struct {
	maxHandlers int // at once

	mu       sync.Mutex // guards what follows
	stopped  bool
	handlers []*Handler // by id, from 1; nil where closed
	threads  []*pollerThread
}

// NewSet returns the handler set of a device, for so many handlers at once.
func NewSet(maxHandlers int) *Set { return &Set{maxHandlers: maxHandlers} }

// PerCore is the maximum number of handlers per CPU of the process: a consumer with several parts has one for
// each part, and those of one core share a thread.
const PerCore = 16

// Verbs has the methods of a transport.Device that concern completion handlers. A device embeds it.
type Verbs struct{ set *Set }

// Verbs returns the Device methods that manage handlers.
func (s *Set) Verbs() Verbs { return Verbs{s} }

// SetCompletionHandler registers a completion handler and starts it.
func (v Verbs) SetCompletionHandler(c transport.HandlerConfig) (transport.HandlerID, error) {
	return v.set.register(c)
}

// ModifyCQ gives a completion queue to another handler, or to none.
func (v Verbs) ModifyCQ(cq transport.CQ, id transport.HandlerID) error {
	q, ok := cq.(Queue)
	if !ok || q.Handling().set != v.set {
		return fmt.Errorf("%w: the completion queue is not of this device", transport.ErrInvalid)
	}
	q.Admit() // queue pairs that arrive later are checked then
	return v.set.give(q, id)
}

// CloseHandler ends a handler that has no queues.
func (v Verbs) CloseHandler(id transport.HandlerID) error { return v.set.close(id) }

// register starts a handler.
func (s *Set) register(c transport.HandlerConfig) (transport.HandlerID, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	if !reflect.TypeOf(c.Lock).Comparable() {
		return 0, fmt.Errorf("%w: a Lock of type %T, which is not comparable: pass a pointer",
			transport.ErrInvalid, c.Lock)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return 0, transport.ErrDeviceGone
	}
	if n := s.live(); n >= s.maxHandlers {
		return 0, fmt.Errorf("%w: %d completion handlers are registered, as many as the cores of this "+
			"process may serve", transport.ErrInvalid, n)
	}
	p, err := s.threadOf(c.Core)
	if err != nil {
		return 0, err
	}
	h := &Handler{id: transport.HandlerID(len(s.handlers) + 1), conf: c, proc: p}
	p.handlers++
	s.handlers = append(s.handlers, h)
	return h.id, nil
}

func (s *Set) live() (n int) {
	for _, h := range s.handlers {
		if h != nil {
			n++
		}
	}
	return n
}

// threadOf returns the thread of a core: an existing one, or a new one.
func (s *Set) threadOf(core int) (*pollerThread, error) {
	for _, p := range s.threads {
		if core >= 0 && p.core == core {
			return p, nil
		}
	}
	p, err := startPollerThread(core)
	if err != nil {
		return nil, err
	}
	s.threads = append(s.threads, p)
	return p, nil
}

// find returns the handler with an id; nil for 0. The lock is held.
func (s *Set) find(id transport.HandlerID) (*Handler, error) {
	if id == 0 {
		return nil, nil
	}
	if int(id) > len(s.handlers) || s.handlers[id-1] == nil {
		return nil, fmt.Errorf("%w: no completion handler %d", transport.ErrInvalid, id)
	}
	return s.handlers[id-1], nil
}

// Add adds a new completion queue of the device, and gives it to a handler, or to none.
func (s *Set) Add(q Queue, id transport.HandlerID) error {
	q.Handling().set = s
	return s.give(q, id)
}

// give gives a completion queue to a handler, or to none: see transport.Device.ModifyCQ.
func (s *Set) give(q Queue, id transport.HandlerID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return transport.ErrDeviceGone
	}
	to, err := s.find(id)
	if err != nil {
		return err
	}
	if q.Poller() == nil {
		return fmt.Errorf("%w: the completion queue is closed", transport.ErrInvalid)
	}
	st := q.Handling()
	from := st.handler.Load()
	if from == to {
		return nil
	}
	if to != nil {
		for o := range q.Others() {
			if !sameLock(to, o.handler.Load()) {
				return ErrLocks
			}
		}
		if from == nil && q.Waited() {
			return fmt.Errorf("%w: a goroutine waits on the completion queue", transport.ErrInvalid)
		}
	}
	moves := from == nil || to == nil || from.proc != to.proc
	served := st.served
	if moves && to != nil { // first: it may fail
		if served, err = to.proc.take(q); err != nil {
			return err
		}
	}
	st.serving = false
	if from != nil {
		st.unpark(q)
		if moves {
			from.proc.release(q)
		}
		from.cqs--
	}
	q.Handled(to != nil) // before another driver uses the queue
	if to != nil {
		to.cqs++
	}
	st.served = served
	st.handler.Store(to)
	q.Wake() // an event may be pending, and a new handler must poll
	return nil
}

// close ends a handler that has no queues.
func (s *Set) close(id transport.HandlerID) error {
	idle, err := s.remove(id)
	if idle != nil {
		idle.stop()
	}
	return err
}

// remove removes a handler, and returns its thread if no other handler uses it.
func (s *Set) remove(id transport.HandlerID) (idle *pollerThread, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(id)
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, fmt.Errorf("%w: no completion handler 0", transport.ErrInvalid)
	case h.cqs > 0:
		return nil, fmt.Errorf("%w: completion handler %d has %d completion queues", transport.ErrInvalid,
			id, h.cqs)
	}
	s.handlers[id-1] = nil
	if h.proc.handlers--; h.proc.handlers > 0 || !slices.Contains(s.threads, h.proc) {
		return nil, nil // others use the thread, or Stop ends it
	}
	s.threads = slices.DeleteFunc(s.threads, func(p *pollerThread) bool { return p == h.proc })
	return h.proc, nil
}

// Stop ends the threads of all handlers after they have delivered the events that were raised. Nothing can be
// registered or given away after it.
func (s *Set) Stop() {
	s.mu.Lock()
	s.stopped = true
	threads := s.threads
	s.threads = nil
	s.mu.Unlock() // their Complete functions may use the device
	for _, p := range threads {
		p.stop()
	}
}

// Cores returns the number of CPUs that this process may use (N1).
func Cores() (int, error) {
	cpus, err := sys.Affinity()
	return len(cpus), err
}
