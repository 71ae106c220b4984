package mpi

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/observe"
)

// comms has the communicators of a rank that are not freed, by id. It implements observe.Communicators.
type comms struct {
	mu   sync.Mutex
	byID map[uint32]*commState
}

func (l *comms) add(c *commState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = map[uint32]*commState{}
	}
	l.byID[c.context] = c
}

func (l *comms) remove(c *commState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[c.context] == c {
		delete(l.byID, c.context)
	}
}

// revoke makes calls on a communicator fail.
func (l *comms) revoke(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byID[id]; c != nil {
		c.revoked.Store(true)
		c.slowPath.Store(true)
	}
}

// disableFastPath makes calls on all communicators and windows take the slow path.
func (l *comms) disableFastPath() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.byID {
		c.slowPath.Store(true)
		if w := c.window.Load(); w != nil {
			w.closed.Store(true)
		}
	}
}

// find returns the communicator of a context id, or nil.
func (l *comms) find(context uint32) *commState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[contextid.Communicator(context)]
}

// all returns the communicators, in the order of their ids.
func (l *comms) all() []*commState {
	l.mu.Lock()
	list := slices.Collect(maps.Values(l.byID))
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b *commState) int { return cmp.Compare(a.context, b.context) })
	return list
}

// List describes the communicators.
func (l *comms) List() []observe.Communicator {
	var list []observe.Communicator
	for _, c := range l.all() {
		list = append(list, c.observed())
	}
	return list
}

// Find describes the communicator of a context id.
func (l *comms) Find(context uint32) (observe.Communicator, bool) {
	if c := l.find(context); c != nil {
		return c.observed(), true
	}
	return observe.Communicator{}, false
}

// observed describes a communicator for package observe.
func (s *commState) observed() observe.Communicator {
	c := observe.Communicator{ID: s.context, Name: *s.label.Load(), Begun: s.coll.number.latest(),
		Checked: s.checker != nil}
	if c.Checked {
		c.Begun = s.coll.checked.Load()
	}
	if s.members != nil {
		c.Ranks = s.members.world
	}
	if w := s.window.Load(); w != nil && !w.freed.Load() {
		c.Held, c.Open = w.locked(), w.w.Open()
	}
	return c
}
