package mpitest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// trace has the calls and matches of each rank of a job, in order.
type trace struct {
	mu    sync.Mutex
	ranks [][]engine.Event
}

// tell handles an event of a rank's engine.
func (r *rank) tell(e engine.Event) {
	r.job.told.Add(1)
	if e.Kind == engine.EventCallBegin {
		r.takeTurn(callSum(&e))
		r.countCall()
		r.job.turns.engines[r.number].begins(e.Call)
	}
	if x := r.job.explored; x != nil {
		x.tell(r.number, e)
	}
	t := r.job.trace
	if t == nil {
		return
	}
	switch e.Kind {
	case engine.EventCallBegin, engine.EventCallEnd, engine.EventMatch:
		e.Elapsed = 0
		t.mu.Lock()
		t.ranks[r.number] = append(t.ranks[r.number], e)
		t.mu.Unlock()
	}
}

// callSum returns a hash of a call and its arguments.
func callSum(e *engine.Event) uint64 {
	return mix(uint64(e.Call)<<48 ^ uint64(e.Bytes))
}

// String returns a line for each call and match.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var text strings.Builder
	for rank, events := range t.ranks {
		for _, e := range events {
			fmt.Fprintf(&text, "rank %d: ", rank)
			switch e.Kind {
			case engine.EventCallBegin:
				fmt.Fprintf(&text, "%v of %d bytes\n", e.Call, e.Bytes)
			case engine.EventCallEnd:
				fmt.Fprintf(&text, "%v ends\n", e.Call)
			case engine.EventMatch:
				fmt.Fprintf(&text, "match in context %d, peer %d, tag %d, %d bytes, unexpected %t\n",
					e.Context, e.Peer, e.Tag, e.Bytes, e.Unexpected)
			}
		}
	}
	return text.String()
}

func newTrace(ranks int) *trace { return &trace{ranks: make([][]engine.Event, ranks)} }
