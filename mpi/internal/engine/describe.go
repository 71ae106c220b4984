package engine

import (
	"runtime"
	"slices"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// A goroutine that sleeps in a call describes its wait itself, and only on demand: Describe wakes every
// sleeper, and each describes its wait before it sleeps again. So waits cost nothing otherwise.

// A Wait describes a goroutine that sleeps in a call.
type Wait struct {
	Goroutine uint64
	Callers   []uintptr     // innermost first, as runtime.CallersFrames takes them
	Since     time.Duration // duration of the wait so far
	// the wait may end by itself: it is bound to a context.Context, or waits for a condition
	Bounded    bool
	Operations []Operation // that are not complete
}

// An Operation is an incomplete operation.
type Operation struct {
	// It is a send, or one of the following. Without these it is a receive or a probe, or, with Moving set,
	// possibly another operation that goes on by itself
	Send       bool
	Lock       bool // the lock of Peer's memory in a window; Context is the window's id
	Collective bool
	Call       coll.Operation // of a collective
	Needs      []int          // for a collective: world ranks whose messages are due
	Context    uint32
	Peer       int // world rank, or AnySource
	Tag        int // or AnyTag
	Bytes      int
	Moving     bool // it advances without an action of another rank
}

// Unmatched is an unexpected message.
type Unmatched struct {
	Context     uint32
	Source, Tag int
	Bytes       int
}

// Traffic counts the messages with a peer.
type Traffic struct {
	Peer           int
	Sent, Received uint64
}

// State describes the waits and the messages of a rank.
type State struct {
	Activity   uint64 // grows whenever a message moves
	Waits      []Wait
	Unexpected []Unmatched
	Traffic    []Traffic
	Leaving    bool // messages wait for a connection or for room, and leave without a further call
}

// descriptions are collected at an endpoint while Describe runs.
type descriptions struct {
	question uint64           // number of the call of Describe
	waits    map[uint64]*Wait // by goroutine
}

const (
	maxCallers = 32
	// describeWithin bounds how long Describe waits for sleepers to sleep again. One that does not has found
	// work, or a busy host does not let it run.
	describeWithin = 500 * time.Millisecond
	describePoll   = 2 * time.Millisecond
)

// Sleepers returns how many goroutines sleep in calls, and a number that grows whenever a message moves. It
// returns false if another goroutine is using an endpoint.
func (h *Hub) Sleepers() (n int, activity uint64, ok bool) {
	n = h.sleepers.count()
	for e := range h.each() {
		if !e.mu.TryLock() {
			return 0, 0, false
		}
		e.recorder.StampNew()
		n += len(e.waiting.forLocks)
		activity += e.activityLocked()
		e.mu.Unlock()
	}
	return n, activity, true
}

// Describe returns the rank's state. It wakes the goroutines that sleep, and waits for at most describeWithin
// until they sleep again.
func (h *Hub) Describe() State {
	h.describing <- struct{}{}
	defer func() { <-h.describing }()
	asleep := 0
	for e := range h.each() {
		asleep += e.waiting.ask()
	}
	asleep += h.sleepers.count()
	h.sleepers.wakeAll()
	for end := time.Now().Add(describeWithin); ; {
		time.Sleep(describePoll)
		answers := 0
		for e := range h.each() {
			answers += e.waiting.answers()
		}
		if answers >= asleep || time.Now().After(end) {
			break
		}
	}
	var st State
	for e := range h.each() {
		e.describe(&st)
	}
	slices.SortFunc(st.Waits, func(a, b Wait) int { return int(a.Goroutine) - int(b.Goroutine) })
	return st
}

// ask makes goroutines describe their waits when they sleep again. It returns how many wait for locks of
// windows.
func (w *waiting) ask() int {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.descriptions = descriptions{question: w.descriptions.question + 1, waits: map[uint64]*Wait{}}
	w.describing.Store(true)
	if w.e.completionHandler.active() && w.e.stopped == nil {
		w.e.completionHandler.runLocked() // on a busy host, what ends a wait may have come unseen
	}
	return len(w.forLocks)
}

// answers returns how many have described theirs.
func (w *waiting) answers() int {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	return len(w.descriptions.waits)
}

// describe adds the state of the endpoint to st, and ends what ask began.
func (e *Engine) describe(st *State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st.Activity += e.activityLocked()
	for _, w := range e.waiting.descriptions.waits {
		st.Waits = append(st.Waits, *w)
	}
	e.waiting.descriptions = descriptions{question: e.waiting.descriptions.question}
	e.waiting.describing.Store(false)
	for m := range e.matching.Unexpected() {
		st.Unexpected = append(st.Unexpected, Unmatched{m.Context, int(m.Source), int(m.Tag), m.Value.bytes})
	}
	traffic, leaving := e.trafficLocked()
	st.addTraffic(traffic)
	st.Leaving = st.Leaving || leaving
}

// addTraffic adds the counts of one endpoint, peer by peer.
func (st *State) addTraffic(list []Traffic) {
	for _, t := range list {
		i := slices.IndexFunc(st.Traffic, func(o Traffic) bool { return o.Peer == t.Peer })
		if i < 0 {
			st.Traffic = append(st.Traffic, t)
			continue
		}
		st.Traffic[i].Sent += t.Sent
		st.Traffic[i].Received += t.Received
	}
}

// Traffic counts the messages with each peer, and reports whether messages wait to leave. It returns nil if
// the rank has stopped.
func (h *Hub) Traffic() (list []Traffic, leaving bool) {
	var st State
	for e := range h.each() {
		e.mu.Lock()
		traffic, waits := e.trafficLocked()
		e.mu.Unlock()
		st.addTraffic(traffic)
		leaving = leaving || waits
	}
	return st.Traffic, leaving
}

func (e *Engine) trafficLocked() (list []Traffic, leaving bool) {
	e.mu.assertHeld()
	if e.stopped != nil || e.closing {
		return nil, false
	}
	for _, p := range e.peers {
		leaving = leaving || p != nil && (p.state == peerConnecting || p.state == peerOpen && p.toSend())
		if p == nil || p.ch == nil && p.unconnected.sent+p.unconnected.received == 0 {
			continue
		}
		t := Traffic{p.rank, p.unconnected.sent, p.unconnected.received}
		if p.ch != nil {
			c := p.ch.Stats()
			t.Sent, t.Received = t.Sent+c.Sent, t.Received+c.Received
		}
		list = append(list, t)
	}
	return list, leaving
}

// toSend reports whether anything waits to be sent to the peer.
func (p *peer) toSend() bool { return p.sendPending() || len(p.controls) > 0 }

// Activity returns a number that grows whenever a message moves.
func (h *Hub) Activity() (n uint64) {
	for e := range h.each() {
		e.mu.Lock()
		n += e.activityLocked()
		e.mu.Unlock()
	}
	return n
}

// activityLocked returns the endpoint's portion of Activity.
func (e *Engine) activityLocked() uint64 {
	e.mu.assertHeld()
	n := e.stats.Unexpected + e.MailboxCalls.begun
	for _, p := range e.peers {
		if p == nil {
			continue
		}
		n += p.unconnected.sent + p.unconnected.received
		if p.ch != nil {
			c := p.ch.Stats()
			n += c.Sent + c.Received + p.stats.Rendezvous + p.stats.Granted
		}
	}
	return n
}

// describeLocked stores a description of what the calling goroutine is about to sleep for: one of n requests;
// or, if n is 0, the message of a probe, or a condition.
func (w *waiting) describeLocked(n int, at func(i int) Request, probed *probed) {
	w.e.mu.assertHeld()
	d := &Wait{Goroutine: program.GoroutineID(), Callers: make([]uintptr, maxCallers), Bounded: n == 0}
	if w.forLocks[d.Goroutine] {
		return // it waits for the lock of a window, and has described that
	}
	d.Callers = d.Callers[:runtime.Callers(3, d.Callers)]
	if probed != nil {
		d.Operations = []Operation{{Context: probed.context, Peer: probed.source, Tag: probed.tag}}
		d.Bounded, d.Since = probed.canceller != nil, time.Since(w.began)-probed.began
	}
	for i := range n {
		if r := w.e.Requests.find(at(i)); r != nil && !r.completed() {
			w.addOperation(d, r)
		}
	}
	w.descriptions.waits[d.Goroutine] = d
}

// addOperation adds a request to the description of a wait.
func (w *waiting) addOperation(d *Wait, r *request) {
	d.Operations = append(d.Operations, r.describe())
	d.Bounded = d.Bounded || r.canceller != nil
	d.Since = max(d.Since, time.Since(w.began)-r.sleptAt)
}

func (r *request) describe() Operation {
	switch o := (Operation{Peer: r.rank}); r.kind {
	case kindCollective:
		c := r.collective
		o.Collective, o.Call, o.Context, o.Tag = true, c.Call.Operation, c.Context, c.Tag
		o.Needs, o.Moving = c.needs()
		return o
	case kindSend:
		o.Send, o.Context, o.Tag, o.Bytes = true, r.msg.Context, int(r.msg.Tag), r.bufferLen()
		return o
	case kindTask:
		o.Moving = true
		return o
	default:
		o.Context, o.Tag, o.Bytes = r.posted.Context, int(r.posted.Tag), r.bufferLen()
		o.Moving = r.allArrived || r.received > 0 || r.openTransfers > 0
		return o
	}
}

// needs returns the world ranks whose messages the current round waits for. moving reports that the round can
// advance without them.
func (c *Collective) needs() (needs []int, moving bool) {
	if c.state == collectiveInMailboxes {
		return c.needsInMailboxes()
	}
	if c.state != collectiveMessages {
		return nil, true
	}
	for _, r := range c.messages {
		if r == nil || r.completed() {
			continue
		}
		o := r.describe()
		if o.Moving || o.Send {
			return nil, true // only its receiver knows whether it took the message
		}
		needs = append(needs, o.Peer)
	}
	return needs, len(needs) == 0
}
