package observe

import (
	"cmp"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// callSites counts the calls of this rank by where the program makes them, for weft run --report. It is a
// hook of the engine. Finding the place costs about a microsecond at each event.
type callSites struct {
	mu      sync.Mutex
	byStack map[stack]*callPlace
	bySite  map[[2]string]*callPlace
}

// stack is the innermost part of one, which has the call of package mpi in it.
type stack [24]uintptr

// callPlace is a place, and what its calls came to. A call of package mpi may consist of several of the
// engine, such as Isend, Recv and two of Wait, so it is counted by the one that there are most of, and by
// those of Wait and Test only if there are no others.
type callPlace struct {
	call, site    string
	counts        [engine.Calls]uint64
	bytes         uint64
	time, waiting time.Duration
}

func newCallSites() *callSites {
	return &callSites{byStack: map[stack]*callPlace{}, bySite: map[[2]string]*callPlace{}}
}

// event takes an event of the engine, on the goroutine that makes the call.
func (c *callSites) event(e engine.Event) {
	if e.Kind != engine.EventCallBegin && e.Kind != engine.EventCallEnd && e.Kind != engine.EventSlept {
		return
	}
	var callers stack
	runtime.Callers(2, callers[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.at(callers)
	switch e.Kind {
	case engine.EventCallBegin:
		s.counts[e.Call]++
		s.bytes += uint64(max(e.Bytes, 0))
	case engine.EventCallEnd:
		s.time += e.Elapsed
	case engine.EventSlept:
		s.waiting += e.Elapsed
	}
}

// at is the place of a stack. The lock is held.
func (c *callSites) at(callers stack) *callPlace {
	s := c.byStack[callers]
	if s != nil {
		return s
	}
	n := 0
	for n < len(callers) && callers[n] != 0 {
		n++
	}
	call, site := program.CalledFrom(callers[:n])
	if site == "" {
		call, site = "weft", "itself"
	}
	key := [2]string{call, site}
	if s = c.bySite[key]; s == nil {
		s = &callPlace{call: call, site: site}
		c.bySite[key] = s
	}
	c.byStack[callers] = s
	return s
}

func (s *callPlace) count() uint64 {
	counts := s.counts
	waits := max(counts[engine.CallWait], counts[engine.CallTest])
	counts[engine.CallWait], counts[engine.CallTest] = 0, 0
	return cmp.Or(slices.Max(counts[:]), waits)
}

// encoded is what the launcher gets. Where a rank only slept, as in Finalize, there is no call to tell of.
func (c *callSites) encoded() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []snapshot.CallSite
	for s := range maps.Values(c.bySite) {
		if s.count() == 0 {
			continue
		}
		list = append(list, snapshot.CallSite{Call: s.call, Site: s.site, Count: s.count(), Bytes: s.bytes,
			Time: s.time, Waiting: s.waiting})
	}
	return json.Marshal(list)
}

// leaveCallSites hands the counts over.
func (o *Observer) leaveCallSites() {
	data, err := o.sites.encoded()
	if err == nil {
		err = o.reporter.leave(snapshot.CallSites, data)
	}
	if err != nil {
		o.rank.Log.Warn("the report of this rank's calls is lost", "error", err)
	}
}
