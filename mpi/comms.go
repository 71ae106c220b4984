package mpi

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/internal/contextid"
)

// comms holds the communicators of a process that are not freed, by id.
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
		c.inFull.Store(true)
	}
}

// lookInFull has calls on all communicators looked at in full.
func (l *comms) lookInFull() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.byID {
		c.inFull.Store(true)
	}
}

// find returns the communicator of an engine context, or nil.
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
