package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/inherited"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/program"
	"github.com/weft-mpi/weft/transport"
)

// quietAfter is the time without a message after which a rank is reported as quiet. The report comes after at
// most twice that time.
const quietAfter = 500 * time.Millisecond

// searchWithin is how long the reporter waits for the search of the program's code (program.Later), which
// happens once. Meanwhile it answers nobody.
const searchWithin = 200 * time.Millisecond

// connection is the connection over which this rank reports its state.
type connection interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
}

// Reporter reports to the launcher, or to rank 0 where there is no launcher, when this rank waits and no
// message moves, and answers questions about what it waits for. It has one goroutine, which costs nothing but
// two polls a second.
type Reporter struct {
	conn     connection               // nil if the rank reports to the user itself, or only answers
	takes    bool                     // the other end is a launcher, which takes artifacts
	observer atomic.Pointer[Observer] // nil until Init is over
	phase    atomic.Pointer[snapshot.Phase]
	site     string // of Init
	// every wait ends by itself, at the deadline of Run's context
	bounded atomic.Bool
	began   time.Time

	mu    sync.Mutex // of early, and of the change of observer
	early []int      // ranks that failed before observer was set

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

func newReporter(conn connection, p snapshot.Phase) *Reporter {
	r := &Reporter{conn: conn, began: time.Now(), taken: make(chan struct{}, 1),
		finished: make(chan struct{})}
	r.moved = r.began
	r.Enter(p)
	return r
}

// ReportInit starts the reporter to the launcher, and reports at once that this rank has called Init. It
// returns nil if there is no launcher, or none that can be reached. The reporter lives as long as the
// process.
func ReportInit() (*Reporter, error) {
	conn, err := launcherConn()
	if conn == nil {
		return nil, err
	}
	r := newReporter(conn, snapshot.Starting)
	r.takes = true
	var callers [maxInitCallers]uintptr
	_, r.site = program.CalledFrom(callers[:runtime.Callers(1, callers[:])])
	go func() {
		if r.send(snapshot.Moving, nil) == nil {
			r.run()
		}
	}()
	return r, nil
}

// maxInitCallers is the number of stack frames in which ReportInit looks for the program's call of Init.
const maxInitCallers = 16

// joined lets the reporter report about a rank. Where there is no reporter to the launcher, it starts one to
// rank 0, or, in a world of one rank and under another launcher, one that tells the user.
func (r *Reporter) joined(o *Observer) *Reporter {
	var run func()
	k := &o.rank
	if r == nil {
		conn, after := k.Wire.Reporter(), o.options.StuckAfter
		switch {
		case conn != nil:
			r = newReporter(conn, snapshot.Running)
			run = r.run
		case after > 0 && k.Hub.Size() == 1:
			r = newReporter(nil, snapshot.Running)
			run = func() { r.watch(r.single(after, o.options.StuckAction)) }
		case after > 0 && k.Wire.UnderPMI():
			r = newReporter(nil, snapshot.Running)
			run = func() { r.watch(r.alone(after)) }
		default:
			return nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observer.Store(o)
	r.Enter(snapshot.Running)
	for _, rank := range r.early {
		r.peerEnded(k.Hub, rank)
	}
	if run != nil {
		go run()
	}
	if r.takes && o.hooks != nil {
		go r.send(snapshot.Measures, nil)
	}
	return r
}

// watch looks at this rank twice a second, until its part in the job is over.
func (r *Reporter) watch(look func()) {
	ticker := time.NewTicker(quietAfter)
	defer ticker.Stop()
	for {
		select {
		case <-r.finished:
			return
		case <-ticker.C:
			look()
		}
	}
}

// single watches the only rank of a world, as the launcher or rank 0 watches the ranks of a larger one.
func (r *Reporter) single(after time.Duration, action deadlock.Action) (look func()) {
	d := deadlock.NewDetector(1, after)
	return func() {
		switch k, changed := r.change(); {
		case changed && k == snapshot.Quiet:
			d.Quiet(time.Now(), 0)
		case changed:
			d.Moving(0)
		}
		d.Tick(time.Now())
		ask, reports := d.Ready()
		if len(ask) > 0 {
			d.Answer(time.Now(), 0, r.Snapshot())
			_, reports = d.Ready()
		}
		for i := range reports {
			r.tellSingle(&reports[i], action)
		}
	}
}

// tellSingle tells the user of the only rank, and ends the process if it is to end.
func (r *Reporter) tellSingle(report *deadlock.Report, action deadlock.Action) {
	why := action.Why(report)
	text := report.Text()
	if end := cmp.Or(why, action.Advice(report, setting.StuckAction.Name+"=")); end != "" {
		text += "weft: " + end + "\n"
	}
	k := &r.observer.Load().rank
	fmt.Fprint(k.Out, text)
	if why != "" {
		k.End(1)
	}
}

// alone prints what this rank waits for when nothing has moved for some time. Nobody asks the other ranks, so
// this proves no deadlock.
func (r *Reporter) alone(after time.Duration) (look func()) {
	told := false
	since := time.Now() // it has waited, and not moved
	return func() {
		switch n, ok := r.waiting(); {
		case !ok:
		case n == 0:
			told, since = false, time.Now()
		case !told && time.Since(since) >= after:
			told = true
			if s := r.Snapshot(); len(s.Waits) > 0 {
				text := fmt.Sprintf("weft: nothing has moved at rank %d for %v; what it waits for\n", s.Rank,
					after)
				for _, line := range deadlock.Alone(s) {
					text += "weft: " + line + "\n"
				}
				fmt.Fprint(r.observer.Load().rank.Out, text)
			}
		}
	}
}

// peerFailed handles the launcher's report that a rank has ended, which may arrive while this rank is in
// Init.
func (r *Reporter) peerFailed(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.observer.Load(); o == nil {
		r.early = append(r.early, rank)
	} else {
		r.peerEnded(o.rank.Hub, rank)
	}
}

func (r *Reporter) peerEnded(h *engine.Hub, rank int) {
	if rank < h.Size() {
		h.PeerFailed(rank, errReported)
	}
}

// errReported is the failure of a rank whose end, or loss with its host, the launcher has reported.
var errReported = fmt.Errorf("%w: the launcher has reported its loss", transport.ErrPeerLost)

// launcherConn returns the connection to the launcher, or nil.
func launcherConn() (*os.File, error) {
	fd, err := inherited.Take(inherited.Snapshots)
	if err != nil || fd < 0 {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "snapshots"), nil
}

// Enter sets the state of the rank. A nil Reporter ignores it.
func (r *Reporter) Enter(p snapshot.Phase) {
	if r == nil {
		return
	}
	if r.phase.Store(&p); p == snapshot.Finished {
		r.finish.Do(func() { close(r.finished) })
	}
}

// Bound notes that calls end with a context.
func (r *Reporter) Bound(ctx context.Context) {
	if _, has := ctx.Deadline(); has && r != nil {
		r.bounded.Store(true)
	}
}

func (r *Reporter) run() {
	defer r.conn.Close()
	var buf [256]byte
	data := buf[:0]
	for {
		r.conn.SetReadDeadline(time.Now().Add(quietAfter))
		n, err := r.conn.Read(buf[len(data):])
		data = buf[:len(data)+n]
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = r.reportQuiet()
		case err == nil:
			data, err = r.obey(data)
			data = buf[:copy(buf[:], data)]
		}
		if err != nil {
			return
		}
	}
}

// obey executes the launcher's commands, and returns the bytes of an incomplete one.
func (r *Reporter) obey(data []byte) ([]byte, error) {
	for {
		command, rank, rest, ok, err := snapshot.NextCommand(data)
		if !ok || err != nil {
			return data, err
		}
		data = rest
		switch {
		case command == snapshot.Ask:
			err = r.answer(snapshot.Answer, r.Snapshot())
		case command == snapshot.AskSample:
			err = r.answer(snapshot.Sampled, r.sample())
		case command == snapshot.AskStacks:
			err = r.artifact(snapshot.Stacks, stacks())
		case command == snapshot.Taken:
			select {
			case r.taken <- struct{}{}:
			default: // nobody waits for it
			}
		case command == snapshot.HandOver:
			go func() { // which waits for Taken
				r.observer.Load().hooks.handOver()
				r.send(snapshot.HandedOver, nil)
			}()
		default:
			r.peerFailed(rank)
		}
		if err != nil {
			return data, err
		}
	}
}

func (r *Reporter) send(k snapshot.Kind, body []byte) error {
	_, err := r.conn.Write(snapshot.AppendFrame(nil, k, body))
	return err
}

func (r *Reporter) answer(k snapshot.Kind, s interface{ Encode() ([]byte, error) }) error {
	body, err := s.Encode()
	if err != nil || len(body) > snapshot.MaxSize {
		return err
	}
	return r.send(k, body)
}

// reportQuiet reports if the rank has become quiet, or is no longer quiet.
func (r *Reporter) reportQuiet() error {
	k, changed := r.change()
	if !changed {
		return nil
	}
	return r.send(k, nil)
}

// change reports whether the rank has become quiet, or is no longer quiet.
func (r *Reporter) change() (k snapshot.Kind, changed bool) {
	sleepers, ok := r.waiting()
	if !ok {
		return 0, false
	}
	return r.found(sleepers)
}

// found is change for a poll that found so many goroutines that wait.
func (r *Reporter) found(sleepers int) (k snapshot.Kind, changed bool) {
	was := r.sleepers
	r.sleepers = sleepers
	switch {
	case sleepers == 0 && r.quiet:
		r.quiet = false
		return snapshot.Moving, true
	// A rank that has computed for long, and is found in a short wait, is not quiet: the search would take
	// time from it.
	case sleepers > 0 && was > 0 && (!r.quiet || sleepers != was) && time.Since(r.moved) >= quietAfter &&
		// Otherwise the next poll reports it. Many ranks that start at once have no CPU time to spare for a
		// search.
		(r.latestPhase == snapshot.Starting || program.Searched(searchWithin)):
		r.quiet = true
		return snapshot.Quiet, true
	}
	return 0, false
}

// waiting returns how many goroutines wait in calls, or 0 if messages have moved since the last poll. ok is
// false if that cannot be determined now.
func (r *Reporter) waiting() (n int, ok bool) {
	began := r.latestPhase == snapshot.Starting
	r.latestPhase = *r.phase.Load()
	if r.latestPhase != snapshot.Running {
		return 1, true // in Init and Finalize it waits for the others
	}
	n, activity, ok := r.observer.Load().rank.Hub.Sleepers()
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
