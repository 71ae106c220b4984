package observe

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// callStats counts a rank's calls and the time spent in them, for weft run --stats. It is a hook of the
// engine, so it costs nothing without that option.
type callStats struct {
	calls [engine.Calls]struct {
		count atomic.Uint64
		time  atomic.Int64 // ns; of all goroutines together
	}
	posted     atomic.Uint64 // messages that arrived after their receive
	unexpected atomic.Uint64 // messages that arrived before their receive
}

// event handles an event of the engine. It allocates nothing.
func (s *callStats) event(e engine.Event) {
	switch e.Kind {
	case engine.EventCallEnd:
		s.calls[e.Call].count.Add(1)
		s.calls[e.Call].time.Add(int64(e.Elapsed))
	case engine.EventMatch:
		if e.Unexpected {
			s.unexpected.Add(1)
		} else {
			s.posted.Add(1)
		}
	}
}

// line returns the counts as weft run --stats shows them.
func (s *callStats) line(rank int) string {
	if s == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "weft: rank %d: time in calls:", rank)
	none := true
	for c := range s.calls {
		n := s.calls[c].count.Load()
		if n == 0 {
			continue
		}
		none = false
		took := time.Duration(s.calls[c].time.Load()).Round(time.Microsecond)
		fmt.Fprintf(&b, " %v %d in %v;", engine.Call(c), n, took)
	}
	if none {
		return ""
	}
	fmt.Fprintf(&b, " %d receives were posted before their message, %d after\n", s.posted.Load(),
		s.unexpected.Load())
	return b.String()
}
