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

// take records an event of a rank's engine.
func (t *trace) take(rank int, e engine.Event) {
	switch e.Kind {
	case engine.EventCallBegin, engine.EventCallEnd, engine.EventMatch:
		e.Elapsed = 0
		t.mu.Lock()
		t.ranks[rank] = append(t.ranks[rank], e)
		t.mu.Unlock()
	}
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
