package handlers

import (
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// queue is a completion queue without queue pairs.
type queue struct {
	transport.CQ
	handling Handling
	poller   *sys.Poller
	handled  bool
}

func (q *queue) Handling() *Handling         { return &q.handling }
func (q *queue) Poller() *sys.Poller         { return q.poller }
func (q *queue) Pass() bool                  { return false }
func (q *queue) Park() bool                  { return true }
func (q *queue) Unpark()                     {}
func (q *queue) Admit()                      {}
func (q *queue) Arm()                        {}
func (q *queue) Waited() bool                { return false }
func (q *queue) Wake()                       { q.poller.Wake() }
func (q *queue) Handled(by bool)             { q.handled = by }
func (q *queue) Others() iter.Seq[*Handling] { return func(func(*Handling) bool) {} }

// A queue that its new handler cannot watch stays with the old one, whose events go on.
func TestModifyCQ_ThatFailsChangesNothing(t *testing.T) {
	s := NewSet(3)
	defer s.Stop()
	var lock sync.Mutex
	told := make(chan transport.HandlerID, 1)
	var ids [3]transport.HandlerID
	for i := range ids {
		var err error
		ids[i], err = s.register(transport.HandlerConfig{Core: -1, Lock: &lock,
			Complete: func(h transport.HandlerID, _ transport.CQ) { told <- h }})
		require.NoError(t, err)
	}
	poller, err := sys.NewPoller()
	require.NoError(t, err)
	q := &queue{poller: poller}
	require.NoError(t, s.Add(q, ids[0]))
	const taken = 77 // the number under which the second handler's thread watches the queue already
	require.NoError(t, s.handlers[ids[1]-1].proc.poller.Nest(poller, taken))

	event := func(by transport.HandlerID) {
		t.Helper()
		lock.Lock()
		if !q.handling.Raise() {
			q.Wake()
		}
		lock.Unlock()
		select {
		case h := <-told:
			require.Equal(t, by, h)
		case <-time.After(time.Minute):
			t.Fatal("no event came")
		}
	}
	lock.Lock()
	err = s.Verbs().ModifyCQ(q, ids[1])
	lock.Unlock()
	require.Error(t, err)
	require.Equal(t, ids[0], q.handling.By())
	require.True(t, q.handled)
	event(ids[0])
	lock.Lock()
	require.NoError(t, s.Verbs().ModifyCQ(q, ids[2]))
	lock.Unlock()
	event(ids[2])
	require.Zero(t, s.handlers[ids[0]-1].cqs)
	lock.Lock()
	require.NoError(t, s.Verbs().ModifyCQ(q, 0))
	lock.Unlock()
	require.False(t, q.handled)
	require.NoError(t, s.handlers[ids[1]-1].proc.poller.Unnest(poller))
	poller.Close()
}
