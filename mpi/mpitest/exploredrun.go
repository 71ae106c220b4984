package mpitest

import (
	"runtime"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// exploredRun is one run of an exploration: it decides from whom receives of any source take their messages,
// and finds out from whom else they could have.
//
// A receive without a decision waits until no rank can go on (the method POE of ISP). Then every message that
// can come without it is there: these are its alternatives. Others come later, since another choice leads to
// them; those that do not depend on this choice are alternatives too (the method of DAMPI). Vector clocks
// tell.
type exploredRun struct {
	forced map[choiceKey]int
	hints  map[choiceKey]int
	late   bool      // the last forced source was found late, and may depend on what is forced
	last   choiceKey // that it is the source of

	mu         sync.Mutex
	made       map[choiceKey]*madeChoice
	order      []choiceKey          // in which they were made
	clocks     [][]int              // of each rank: how many choices of each rank it knows the result of
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
	stamp        int // of the rank's own clock when it knows the result; 0 while it does not
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

// decided is the source of a choice that was decided before the run.
func (x *exploredRun) decided(key choiceKey) (int, bool) {
	source, ok := x.forced[key]
	return source, ok
}

// choose decides one choice each time that no rank can go on.
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

// tell takes what the engine of a rank tells.
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

// begin notes a choice, which has a source if it was decided before.
func (x *exploredRun) begin(rank int, e engine.Event) {
	key := choiceKey{rank, e.Choice - 1}
	callers := make([]uintptr, 32)
	m := &madeChoice{context: e.Context, tag: e.Tag, source: -1,
		callers: callers[:runtime.Callers(4, callers)]}
	x.made[key] = m
	if source, ok := x.forced[key]; ok {
		m.source = source
	}
	if e.Peer >= 0 { // of a probe: all that is there are alternatives
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

// waiting are the envelopes of messages that a probe finds.
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

// arrive has a message be an alternative for the choices of its receiver that could have taken it.
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

// decisions are those made so far.
func (x *exploredRun) decisions() map[choiceKey]int {
	list := map[choiceKey]int{}
	for _, key := range x.order {
		list[key] = x.made[key].source
	}
	return list
}

// learn has a rank know what the sender of a message knew when it sent it.
func (x *exploredRun) learn(rank int, in envelope, i int) {
	if list := x.sent[in]; i < len(list) {
		for k, n := range list[i] {
			x.clocks[rank][k] = max(x.clocks[rank][k], n)
		}
	}
}

// stuck notes whether a run can go on no more since a source was decided that does not come. The bubble has
// found that nothing can move.
func (x *exploredRun) stuck(j *job) {
	if x.late {
		r := j.ranks[x.last.rank].place.Rank()
		x.infeasible = r != nil && r.Engine() != nil && r.Engine().Choices.Unmatched(x.last.number)
	}
}

// extend adds the choices of the run to the path that it was forced on, and the alternatives that it has
// found to those on it.
func (x *exploredRun) extend(path []node) []node {
	at := map[choiceKey]int{}
	for i := range path {
		at[path[i].key] = i
	}
	for _, key := range x.order {
		i, ok := at[key]
		if !ok {
			if x.infeasible {
				continue // nothing has come of it
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
