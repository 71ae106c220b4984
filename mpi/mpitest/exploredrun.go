package mpitest

import (
	"runtime"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// exploredRun is one run of an exploration: it decides the sources of receives from any source, and finds
// other possible sources.
//
// A receive without a decision waits until no rank can go on (the method POE of ISP). Then every message that
// can come without it has arrived: these are its alternatives. Other messages come later, as a result of
// another choice. Those that do not depend on this choice, by vector clocks, are alternatives, too (the
// method of DAMPI).
type exploredRun struct {
	forced map[choiceKey]int
	hints  map[choiceKey]int
	late   bool      // the last forced source was found late, and may depend on forced choices
	last   choiceKey // the choice with that source

	mu         sync.Mutex
	made       map[choiceKey]*madeChoice
	order      []choiceKey          // the choices, in order
	clocks     [][]int              // by rank: the number of choices of each rank whose result it knows
	sent       map[envelope][][]int // the sender's clock at each message
	arrived    map[envelope]int     // messages
	matched    map[envelope]int
	collected  map[envelope]int
	logged     []string
	failed     bool
	infeasible bool
}

// madeChoice is a choice of a run.
type madeChoice struct {
	context      uint32
	tag          int
	source       int // -1 while it is open
	stamp        int // the rank's clock when it knew the result; 0 before
	alternatives []alternative
	callers      []uintptr
}

type envelope struct {
	from, to int
	context  uint32
	tag      int
}

func newExploredRun(ranks int, path []node, last alternative) *exploredRun {
	x := &exploredRun{forced: map[choiceKey]int{}, hints: last.hints, made: map[choiceKey]*madeChoice{},
		sent: map[envelope][][]int{}, arrived: map[envelope]int{},
		matched: map[envelope]int{}, collected: map[envelope]int{}}
	for _, n := range path {
		x.forced[n.key] = n.source
		x.last, x.late = n.key, last.late
	}
	for range ranks {
		x.clocks = append(x.clocks, make([]int, ranks))
	}
	return x
}

// decided returns the source of a choice that was decided before the run.
func (x *exploredRun) decided(key choiceKey) (int, bool) {
	source, ok := x.forced[key]
	return source, ok
}

// choose decides one choice whenever no rank can go on.
func (x *exploredRun) choose(j *job) {
	for again := false; j.turns.waitFence(again); {
		again = x.chooseOne(j)
	}
}

func (x *exploredRun) chooseOne(j *job) bool {
	for _, r := range j.ranks {
		if r.ended.Load() || r.place.Rank() == nil {
			continue
		}
		e := r.place.Rank().Engine()
		if e == nil {
			continue
		}
		for _, c := range e.Choices.Open() {
			source := x.decide(choiceKey{r.number, c.Number}, c.Sources)
			e.Choices.Decide(c.Number, source)
			return true
		}
	}
	return false
}

// decide chooses one of several sources for a receive.
func (x *exploredRun) decide(key choiceKey, sources []int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.made[key]
	source := sources[0]
	if hint, ok := x.hints[key]; ok && slices.Contains(sources, hint) {
		source = hint
	}
	for _, s := range sources {
		m.add(alternative{source: s, hints: x.hints})
	}
	m.source = source
	x.order = append(x.order, key)
	return source
}

func (m *madeChoice) add(a alternative) {
	if !slices.ContainsFunc(m.alternatives, func(o alternative) bool { return o.source == a.source }) {
		m.alternatives = append(m.alternatives, a)
	}
}

// tell handles an event of a rank's engine.
func (x *exploredRun) tell(rank int, e engine.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	clock := x.clocks[rank]
	in := envelope{e.Peer, rank, e.Context, e.Tag}
	switch e.Kind {
	case engine.EventSent:
		out := envelope{rank, e.Peer, e.Context, e.Tag}
		x.sent[out] = append(x.sent[out], slices.Clone(clock))
	case engine.EventArrived:
		x.arrive(in)
	case engine.EventMatch:
		if !e.Unexpected {
			x.arrive(in)
		}
		if x.matched[in]++; !pointToPoint(e.Context) {
			x.learn(rank, in, x.matched[in]-1)
		}
	case engine.EventCollected:
		x.collected[in]++
		x.learn(rank, in, x.collected[in]-1)
		if e.Choice > 0 {
			clock[rank]++
			x.made[choiceKey{rank, e.Choice - 1}].stamp = clock[rank]
		}
	case engine.EventChoice:
		x.begin(rank, e)
	}
}

// begin records a choice, which has a source if it was decided before.
func (x *exploredRun) begin(rank int, e engine.Event) {
	key := choiceKey{rank, e.Choice - 1}
	callers := make([]uintptr, 32)
	m := &madeChoice{context: e.Context, tag: e.Tag, source: -1,
		callers: callers[:runtime.Callers(4, callers)]}
	x.made[key] = m
	if source, ok := x.forced[key]; ok {
		m.source = source
	}
	if e.Peer >= 0 { // a probe: all messages present are alternatives
		m.source = e.Peer
		for _, in := range x.waiting(rank, m) {
			m.add(alternative{source: in.from, hints: x.hints})
		}
		in := envelope{e.Peer, rank, e.Context, e.Tag}
		x.learn(rank, in, x.matched[in])
		x.clocks[rank][rank]++
		m.stamp = x.clocks[rank][rank]
	}
	if m.source >= 0 {
		m.add(alternative{source: m.source})
		x.order = append(x.order, key)
	}
}

// waiting returns the envelopes of messages that a probe finds.
func (x *exploredRun) waiting(rank int, m *madeChoice) (list []envelope) {
	for in, n := range x.arrived {
		if in.to == rank && n > x.matched[in] && m.accepts(in) {
			list = append(list, in)
		}
	}
	slices.SortFunc(list, func(a, b envelope) int { return a.from - b.from })
	return list
}

func (m *madeChoice) accepts(in envelope) bool {
	return in.context == m.context && (m.tag == in.tag || m.tag == engine.AnyTag)
}

// arrive makes a message an alternative for the choices of its receiver that could have matched it.
func (x *exploredRun) arrive(in envelope) {
	i := x.arrived[in]
	x.arrived[in]++
	var at []int
	if list := x.sent[in]; i < len(list) {
		at = list[i]
	}
	for key, m := range x.made {
		if key.rank != in.to || m.source < 0 || !m.accepts(in) ||
			at != nil && m.stamp > 0 && at[in.to] >= m.stamp {
			continue
		}
		if in.from != m.source {
			m.add(alternative{source: in.from, late: true, hints: x.decisions()})
		}
	}
}

// decisions returns the decisions so far.
func (x *exploredRun) decisions() map[choiceKey]int {
	list := map[choiceKey]int{}
	for _, key := range x.order {
		list[key] = x.made[key].source
	}
	return list
}

// learn adds the knowledge of a message's sender, at the time of sending, to a rank's.
func (x *exploredRun) learn(rank int, in envelope, i int) {
	if list := x.sent[in]; i < len(list) {
		for k, n := range list[i] {
			x.clocks[rank][k] = max(x.clocks[rank][k], n)
		}
	}
}

// stuck records whether a run is stuck because a decided source does not come. The bubble has found that
// nothing can move.
func (x *exploredRun) stuck(j *job) {
	if x.late {
		r := j.ranks[x.last.rank].place.Rank()
		x.infeasible = r != nil && r.Engine() != nil && r.Engine().Choices.Unmatched(x.last.number)
	}
}

// extend adds the choices of the run to its forced path, and the alternatives that it has found to the
// choices.
func (x *exploredRun) extend(path []node) []node {
	at := map[choiceKey]int{}
	for i := range path {
		at[path[i].key] = i
	}
	for _, key := range x.order {
		i, ok := at[key]
		if !ok {
			if x.infeasible {
				continue // it had no result
			}
			i = len(path)
			source := x.made[key].source
			path = append(path, node{key: key, source: source, known: map[int]bool{source: true}})
		}
		for _, a := range x.made[key].alternatives {
			if n := &path[i]; !n.known[a.source] {
				n.known[a.source] = true
				n.todo = append(n.todo, a)
			}
		}
	}
	return path
}

func (x *exploredRun) log(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.logged = append(x.logged, text)
}

func (x *exploredRun) fail() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = true
}

func (x *exploredRun) hasFailed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failed
}
