package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/transport"
)

// quietAfter is for how long no message of a rank must have moved until the launcher is told that it is
// quiet; at most twice that.
const quietAfter = 500 * time.Millisecond

// The trace of goroutines that is looked through: the memory to begin with, and the most.
const (
	minTrace = 64 << 10
	maxTrace = 4 << 20
)

// stateConn is the connection to who wants to know.
type stateConn interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
}

// stateReporter tells the launcher, or rank 0 where there is none, when this rank waits and does not move,
// and what it waits for when it is asked. It has one goroutine, which costs nothing but two polls a second.
type stateReporter struct {
	conn  stateConn            // nil where the rank tells the user itself
	takes bool                 // artifacts: the other end is a launcher's
	world atomic.Pointer[Comm] // nil until Init is over
	phase atomic.Pointer[snapshot.Phase]
	site  string // of Init
	began time.Time

	mu    sync.Mutex // of what follows, and of the change of world
	early []int      // ranks that failed before that

	// These belong to the goroutine.
	latestPhase snapshot.Phase // at the latest poll
	activity    uint64
	moved       time.Time // when activity last grew
	sleepers    int
	quiet       bool
	latest      snapshot.Sample

	taken    chan struct{} // told when the launcher has an artifact
	finished chan struct{} // closed when the rank's part in the job is over
	finish   sync.Once
}

func newStateReporter(conn stateConn, p snapshot.Phase) *stateReporter {
	r := &stateReporter{conn: conn, began: time.Now(), taken: make(chan struct{}, 1),
		finished: make(chan struct{})}
	r.moved = r.began
	r.enter(p)
	return r
}

// reportInit starts the reporter to the launcher, which is told at once that this rank has called Init; nil
// where there is none. It lives as long as the process.
func reportInit() *stateReporter {
	conn := launcherConn()
	if conn == nil {
		return nil
	}
	r := newStateReporter(conn, snapshot.Starting)
	r.takes = true
	var callers [maxInitCallers]uintptr
	_, r.site = calledFrom(callers[:runtime.Callers(1, callers[:])])
	go func() {
		if r.send(snapshot.Moving, nil) == nil {
			r.run()
		}
	}()
	return r
}

// maxInitCallers is how far the program's call of Init is looked for.
const maxInitCallers = 16

// joined has the reporter tell of a world. Where there is none to the launcher, one is started that tells
// rank 0; or the user, where another launcher has started the job, if nothing has moved for the duration
// alone (0 for never).
func (r *stateReporter) joined(world *Comm, alone time.Duration) *stateReporter {
	var run func()
	if r == nil {
		conn := world.job.wire.Reporter()
		switch {
		case conn != nil:
			r = newStateReporter(conn, snapshot.Running)
			run = r.run
		case alone > 0 && world.job.wire.UnderPMI():
			r = newStateReporter(nil, snapshot.Running)
			run = func() { r.runAlone(alone) }
		default:
			return nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.world.Store(world)
	r.enter(snapshot.Running)
	for _, rank := range r.early {
		if rank < world.e.Size() {
			world.e.PeerFailed(rank, errLauncherSaw)
		}
	}
	if run != nil {
		go run()
	}
	return r
}

// runAlone tells the user what this rank waits for when nothing has moved for some time. Nobody asks the
// other ranks, so it proves nothing.
func (r *stateReporter) runAlone(after time.Duration) {
	told := false
	since := time.Now() // it has waited, and not moved
	ticker := time.NewTicker(quietAfter)
	defer ticker.Stop()
	for {
		select {
		case <-r.finished:
			return
		case <-ticker.C:
		}
		switch n, ok := r.waiting(); {
		case !ok:
		case n == 0:
			told, since = false, time.Now()
		case !told && time.Since(since) >= after:
			told = true
			if s := r.snapshot(); len(s.Waits) > 0 {
				text := fmt.Sprintf("weft: nothing has moved at rank %d for %v; what it waits for\n", s.Rank,
					after)
				for _, line := range deadlock.Alone(s) {
					text += "weft: " + line + "\n"
				}
				fmt.Fprint(os.Stderr, text)
			}
		}
	}
}

// peerFailed takes the launcher's word for the end of a rank, which may come while this one is in Init.
func (r *stateReporter) peerFailed(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.world.Load(); c == nil {
		r.early = append(r.early, rank)
	} else if rank < c.e.Size() {
		c.e.PeerFailed(rank, errLauncherSaw)
	}
}

// launcherConn is the connection to the launcher; nil where there is none.
func launcherConn() *os.File {
	fd, err := strconv.Atoi(os.Getenv(snapshot.Variable))
	if err != nil || fd < 3 {
		return nil
	}
	syscall.CloseOnExec(fd)
	if syscall.SetNonblock(fd, true) != nil {
		return nil // a program between launcher and rank has closed it
	}
	os.Unsetenv(snapshot.Variable)
	return os.NewFile(uintptr(fd), "snapshots")
}

// enter notes how far the rank is.
func (r *stateReporter) enter(p snapshot.Phase) {
	if r == nil {
		return
	}
	if r.phase.Store(&p); p == snapshot.Finished {
		r.finish.Do(func() { close(r.finished) })
	}
}

func (r *stateReporter) run() {
	defer r.conn.Close()
	var buf [256]byte
	said := buf[:0]
	for {
		r.conn.SetReadDeadline(time.Now().Add(quietAfter))
		n, err := r.conn.Read(buf[len(said):])
		said = buf[:len(said)+n]
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = r.reportQuiet()
		case err == nil:
			said, err = r.obey(said)
			said = buf[:copy(buf[:], said)]
		}
		if err != nil {
			return
		}
	}
}

// obey does what the launcher has said, and returns what is not complete yet.
func (r *stateReporter) obey(said []byte) ([]byte, error) {
	for {
		command, rank, rest, ok, err := snapshot.NextCommand(said)
		if !ok || err != nil {
			return said, err
		}
		said = rest
		switch {
		case command == snapshot.Ask:
			err = r.answer(snapshot.Answer, r.snapshot())
		case command == snapshot.AskSample:
			err = r.answer(snapshot.Sampled, r.sample())
		case command == snapshot.AskStacks:
			err = r.artifact(snapshot.Stacks, stacks())
		case command == snapshot.Taken:
			select {
			case r.taken <- struct{}{}:
			default: // nobody waits for it
			}
		default:
			r.peerFailed(rank)
		}
		if err != nil {
			return said, err
		}
	}
}

// errLauncherSaw is why a rank has failed whose end the launcher has seen.
var errLauncherSaw = fmt.Errorf("%w: the launcher has seen it end", transport.ErrPeerLost)

func (r *stateReporter) send(k snapshot.Kind, body []byte) error {
	_, err := r.conn.Write(snapshot.AppendFrame(nil, k, body))
	return err
}

// reportQuiet tells the launcher if the rank has become quiet, or is no longer.
func (r *stateReporter) reportQuiet() error {
	sleepers, ok := r.waiting()
	if !ok {
		return nil
	}
	was := r.sleepers
	r.sleepers = sleepers
	switch {
	case sleepers == 0 && r.quiet:
		r.quiet = false
		return r.send(snapshot.Moving, nil)
	case sleepers > 0 && sleepers != was && time.Since(r.moved) >= quietAfter:
		r.quiet = true
		return r.send(snapshot.Quiet, nil)
	}
	return nil
}

// waiting is how many goroutines wait in calls, 0 if messages have moved since the last poll. It returns
// false where that cannot be told now.
func (r *stateReporter) waiting() (n int, ok bool) {
	began := r.latestPhase == snapshot.Starting
	r.latestPhase = *r.phase.Load()
	if r.latestPhase != snapshot.Running {
		return 1, true // in Init and Finalize it waits for the others
	}
	n, activity, ok := r.world.Load().e.Sleepers()
	if began {
		r.activity, r.moved = activity, time.Now()
		return 0, true
	}
	if ok && activity != r.activity {
		r.activity, r.moved = activity, time.Now()
		n = 0
	}
	return n, ok
}

func (r *stateReporter) answer(k snapshot.Kind, s interface{ Encode() ([]byte, error) }) error {
	body, err := s.Encode()
	if err != nil || len(body) > snapshot.MaxSize {
		return err
	}
	return r.send(k, body)
}

// snapshot makes the rank's snapshot.
func (r *stateReporter) snapshot() *snapshot.Rank {
	phase := *r.phase.Load()
	c := r.world.Load()
	if phase == snapshot.Starting {
		s := &snapshot.Rank{Phase: phase, Still: time.Since(r.began)}
		s.Waits = []snapshot.Wait{{Call: snapshot.Init, Site: r.site, Since: s.Still}}
		return s
	}
	if c == nil { // Init has failed
		return &snapshot.Rank{Phase: phase, Still: time.Since(r.began)}
	}
	s := &snapshot.Rank{Rank: c.rank, Size: c.size, Phase: phase, Comms: c.job.comms.describe()}
	if s.Phase != snapshot.Running {
		s.Still = time.Since(r.moved)
		s.Waits = []snapshot.Wait{{Call: snapshot.Finalize, Since: s.Still,
			Ops: []snapshot.Op{{Kind: snapshot.Collective, Name: snapshot.Finalize}}}}
		s.Channels = channels(c.e.Traffic())
		return s
	}
	st := c.e.Describe()
	if st.Activity != r.activity {
		r.activity, r.moved = st.Activity, time.Now()
	}
	s.Progress, s.Still = st.Activity, time.Since(r.moved)
	waiting := map[uint64]bool{}
	for i := range st.Waits {
		waiting[st.Waits[i].Goroutine] = true
		if ofComparison(&st.Waits[i]) {
			continue
		}
		if len(s.Waits) == snapshot.MaxWaits {
			s.MoreWaits++
			continue
		}
		s.Waits = append(s.Waits, c.job.comms.wait(&st.Waits[i]))
	}
	for _, m := range st.Unexpected {
		if m.Context%contextsPerComm != pointToPoint {
			continue
		}
		if len(s.Unexpected) == snapshot.MaxMessages {
			s.More++
			continue
		}
		s.Unexpected = append(s.Unexpected, snapshot.Message{Comm: m.Context, From: m.Source, Tag: m.Tag,
			Bytes: m.Bytes})
	}
	s.Locks = c.job.comms.locks()
	s.Channels = channels(st.Traffic)
	s.Active, s.At = active(waiting)
	return s
}

func channels(traffic []engine.Traffic) []snapshot.Channel {
	var list []snapshot.Channel
	for _, t := range traffic[:min(len(traffic), snapshot.MaxChannels)] {
		list = append(list, snapshot.Channel{Peer: t.Peer, Sent: t.Sent, Received: t.Received})
	}
	return list
}

// active counts the goroutines of the program that may act by themselves, and tells where one of them is.
func active(waiting map[uint64]bool) (n int, at string) {
	var trace []byte
	size := 0
	for room := minTrace; size == len(trace) && room <= maxTrace; room *= 2 {
		trace = make([]byte, room)
		size = runtime.Stack(trace, true)
	}
	if size == len(trace) {
		n = 1 // some are cut off
	}
	for _, g := range parseGoroutines(string(trace[:size])) {
		if !g.ours || waiting[g.id] || g.passive() {
			continue
		}
		n++
		if at == "" {
			at = g.site
		}
	}
	return n, at
}

// comms are the communicators of a process that are not freed, by id.
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

// revoke has calls on a communicator fail.
func (l *comms) revoke(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byID[id]; c != nil {
		c.revoked.Store(true)
		c.inFull.Store(true)
	}
}

func (l *comms) remove(c *commState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[c.context] == c {
		delete(l.byID, c.context)
	}
}

// ofComparison tells whether a wait is of a goroutine that compares a collective that does not block, in
// checking mode: it is not the program's.
func ofComparison(w *engine.Wait) bool {
	if len(w.Operations) == 0 || w.Operations[0].Context%contextsPerComm != checking {
		return false
	}
	_, site := calledFrom(w.Callers)
	return site == ""
}

// find is the communicator of an engine context; nil if there is none.
func (l *comms) find(context uint32) *commState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[context&^(contextsPerComm-1)]
}

// all are the communicators, in the order of their ids.
func (l *comms) all() []*commState {
	l.mu.Lock()
	list := slices.Collect(maps.Values(l.byID))
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b *commState) int { return cmp.Compare(a.context, b.context) })
	return list
}

// begun is how many collectives have been begun, as far as they have numbers.
func (c *commState) begun() uint32 {
	if c.checker != nil {
		return c.coll.checked.Load()
	}
	return c.coll.number.Load()
}

// describe lists the communicators.
func (l *comms) describe() []snapshot.Comm {
	list := l.all()
	var out []snapshot.Comm
	for _, c := range list[:min(len(list), snapshot.MaxComms)] {
		d := snapshot.Comm{ID: c.context, Name: *c.label.Load(), Begun: uint64(c.begun())}
		if c.members != nil {
			for _, w := range c.members.world {
				d.Ranks = append(d.Ranks, int(w))
			}
		}
		out = append(out, d)
	}
	return out
}

// locks are the locks of windows that this rank has.
func (l *comms) locks() (held []snapshot.Held) {
	for _, c := range l.all() {
		w := c.window.Load()
		if w == nil || w.freed.Load() {
			continue
		}
		for rank := range w.access {
			if w.access[rank].Load()&(accessShared|accessExclusive) != 0 && len(held) < snapshot.MaxLocks {
				held = append(held, snapshot.Held{Comm: c.context, Peer: w.comm.worldRank(rank)})
			}
		}
	}
	return held
}

// wait describes a wait of the engine in terms of communicators.
func (l *comms) wait(w *engine.Wait) snapshot.Wait {
	s := snapshot.Wait{Goroutine: w.Goroutine, Since: w.Since, Bounded: w.Bounded}
	s.Call, s.Site = calledFrom(w.Callers)
	for i := range w.Operations {
		if len(s.Ops) == snapshot.MaxOps {
			s.MoreOps++
			continue
		}
		o := l.operation(&w.Operations[i])
		if w.Operations[i].Context%contextsPerComm == checking {
			o.Name = s.Call
		}
		s.Ops = append(s.Ops, o)
	}
	return s
}

func (l *comms) operation(o *engine.Operation) snapshot.Op {
	s := snapshot.Op{Kind: snapshot.Recv, Comm: o.Context &^ (contextsPerComm - 1), Peer: o.Peer, Tag: o.Tag,
		Bytes: o.Bytes, Moving: o.Moving}
	switch {
	case o.Lock:
		s.Kind = snapshot.Lock
		return s
	case o.Collective != nil:
		s.Kind, s.Needs = snapshot.Collective, o.Needs
		s.Peer, s.Tag = 0, 0
		s.Name, s.Number = o.Collective.Call.Operation.String(), l.number(s.Comm, o)
	case o.Context%contextsPerComm == checking: // the comparison before a collective
		s.Kind, s.Needs = snapshot.Collective, []int{o.Peer}
		s.Peer, s.Tag = 0, 0
		if c := l.find(o.Context); c != nil {
			s.Number = uint64(c.coll.checked.Load())
		}
	case o.Send:
		s.Kind = snapshot.Send
	}
	if s.Kind == snapshot.Recv {
		s.Name = l.internalMessage(o)
	}
	if s.Kind != snapshot.Collective {
		if s.Peer == AnySource {
			s.Peer = snapshot.Any
		}
		if s.Tag == AnyTag {
			s.Tag = snapshot.Any
		}
	}
	return s
}

// internalMessage is what a message is that a call waits for, and the program has not sent: empty for others.
func (l *comms) internalMessage(o *engine.Operation) string {
	if o.Context%contextsPerComm != pointToPoint {
		return "the part"
	}
	if c := l.find(o.Context); c == nil || c.window.Load() == nil {
		return ""
	} else if o.Tag == postTag {
		return "the Post"
	}
	return "the Complete"
}

// number is how many collectives had been begun on a communicator with an operation: the number nearest to
// the latest one that the operation's tag has the low bits of. It is 0 for a persistent one.
func (l *comms) number(id uint32, o *engine.Operation) uint64 {
	number, bits, ok := engine.CollectiveNumber(o.Tag)
	l.mu.Lock()
	c := l.byID[id]
	l.mu.Unlock()
	if !ok || c == nil || c.checker != nil { // in checking mode comparisons are counted
		return 0
	}
	begun := c.coll.number.Load()
	return uint64(begun - (begun-number)&(1<<bits-1))
}
