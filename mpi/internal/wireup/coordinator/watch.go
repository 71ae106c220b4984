package coordinator

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
)

// watch finds out at rank 0 why its job hangs, as a launcher does: ranks report when they wait without
// moving, and what they wait for when asked. A nil watch does nothing.
type watch struct {
	server *server
	action deadlock.Action

	mu       sync.Mutex
	detector *deadlock.Detector
	said     [][]byte // by rank: an incomplete frame

	changed chan struct{}
	over    chan struct{}
	stopped chan struct{}
	once    sync.Once
}

func startWatch(s *server, c Config) *watch {
	w := &watch{server: s, action: c.StuckAction, detector: deadlock.NewDetector(c.Size, c.Stuck),
		said: make([][]byte, c.Size), changed: make(chan struct{}, 1), over: make(chan struct{}),
		stopped: make(chan struct{})}
	go w.run(c.Stuck)
	return w
}

// take handles a piece of a rank's frames. An error is a violation of the protocol.
func (w *watch) take(rank uint32, piece string) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b := append(w.said[rank], piece...)
	for {
		k, body, rest, ok, err := snapshot.NextFrame(b)
		if err != nil {
			return err
		}
		if !ok {
			w.said[rank] = b
			break
		}
		now := time.Now()
		switch k {
		case snapshot.Quiet:
			w.detector.Quiet(now, int(rank))
		case snapshot.Moving:
			w.detector.Moving(int(rank))
		case snapshot.Answer:
			// A rank with an invalid snapshot counts as one that does not answer.
			if s, err := snapshot.Decode(body); err == nil {
				w.detector.Answer(now, int(rank), s)
			}
		}
		b = append([]byte(nil), rest...)
	}
	w.wake()
	return nil
}

// ended records that a rank has left the job.
func (w *watch) ended(rank uint32) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.detector.Ended(time.Now(), int(rank))
	w.wake()
}

// wake makes run check the detector.
func (w *watch) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watch) stop() {
	if w == nil {
		return
	}
	w.once.Do(func() { close(w.over) })
	<-w.stopped
}

// run drives the detector. If ranks have not come when the time without progress is over, it reports which.
func (w *watch) run(after time.Duration) {
	defer close(w.stopped)
	late := time.NewTimer(after)
	defer late.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-w.over:
			return
		case <-w.changed:
		case <-timer.C:
		case <-late.C:
			w.server.mu.Lock()
			text := w.server.table.missing()
			w.server.mu.Unlock()
			if text != "" {
				fmt.Fprintf(os.Stderr, "weft: %s within %v: the others wait in Init\n", text, after)
			}
		}
		w.mu.Lock()
		w.detector.Tick(time.Now())
		ask, reports := w.detector.Ready()
		next := w.detector.Next()
		w.mu.Unlock()
		for _, rank := range ask {
			w.server.send(delivery{uint32(rank), message{kind: kindAsk, number: snapshot.Ask}}, sendWithin)
		}
		for i := range reports {
			w.tell(&reports[i])
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// tell prints the detector's report.
func (w *watch) tell(r *deadlock.Report) {
	why := w.action.Why(r)
	text := r.Text()
	if why == "" {
		if advice := w.action.Advice(r, setting.StuckAction.Name+"="); advice != "" {
			text += "weft: " + advice + "\n"
		}
	}
	fmt.Fprint(os.Stderr, text)
	if why != "" {
		by := uint32(UnmovedRank)
		if r.Proven {
			by = StuckRank
		}
		w.server.mu.Lock()
		out := w.server.table.fail(message{kind: kindAborted, rank: by, number: 1})
		w.server.mu.Unlock()
		w.server.deliver(out)
	}
}
