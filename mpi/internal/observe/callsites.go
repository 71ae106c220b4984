package observe

import (
	"cmp"
	"encoding/json"
	"maps"
	"runtime"
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

// stack is the innermost part of a stack, which includes the call of package mpi.
type stack [24]uintptr

// callPlace is a place with the counts of its calls.
type callPlace struct {
	call, site string
	calls      [engine.Calls]callCount
	waiting    time.Duration
}

// callCount has the counts of the calls of one kind.
type callCount struct {
	count, bytes uint64
	time         time.Duration
}

func newCallSites() *callSites {
	return &callSites{byStack: map[stack]*callPlace{}, bySite: map[[2]string]*callPlace{}}
}

// event handles an event of the engine, on the goroutine that makes the call.
func (c *callSites) event(e engine.Event) {
	switch e.Kind {
	case engine.EventCallBegin, engine.EventCallEnd, engine.EventSlept:
	default:
		return
	}
	if e.Call == engine.CallFinalize { // waiting for the others does not count
		return
	}
	var callers stack
	runtime.Callers(2, callers[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.at(callers)
	switch e.Kind {
	case engine.EventCallBegin:
		s.calls[e.Call].count++
		s.calls[e.Call].bytes += uint64(max(e.Bytes, 0))
	case engine.EventCallEnd:
		s.calls[e.Call].time += e.Elapsed
	case engine.EventSlept:
		s.waiting += e.Elapsed
	}
}

// at returns the place of a stack. The lock is held.
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

// total returns the sums of the place's calls. A composite call includes its inner calls, so only it is
// counted. Other calls of package mpi may produce several events, such as Isend, Recv and two Waits: the most
// frequent kind is counted, and Wait and Test only if there is no other.
func (s *callPlace) total() (total callCount) {
	var waits uint64
	composite := false
	for c := range engine.Calls {
		n := &s.calls[c]
		if n.count == 0 {
			continue
		}
		if c.Composite() && !composite {
			composite, total, waits = true, callCount{}, 0
		}
		if c.Composite() != composite {
			continue
		}
		total.bytes += n.bytes
		total.time += n.time
		if c == engine.CallWait || c == engine.CallTest {
			waits = max(waits, n.count)
		} else {
			total.count = max(total.count, n.count)
		}
	}
	total.count = cmp.Or(total.count, waits)
	return total
}

// encoded returns the counts, encoded for the launcher. It omits places where a rank only slept, as in
// Finalize.
func (c *callSites) encoded() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []snapshot.CallSite
	for s := range maps.Values(c.bySite) {
		n := s.total()
		if n.count == 0 {
			continue
		}
		list = append(list, snapshot.CallSite{Call: s.call, Site: s.site, Count: n.count, Bytes: n.bytes,
			Time: n.time, Waiting: s.waiting})
	}
	return json.Marshal(list)
}

// leaveCallSites hands over the counts.
func (o *Observer) leaveCallSites() {
	data, err := o.sites.encoded()
	if err == nil {
		err = o.reporter.leave(snapshot.CallSites, data)
	}
	if err != nil {
		o.rank.Log.Warn("the report of this rank's calls is lost", "error", err)
	}
}
