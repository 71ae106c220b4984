package shm

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// awaitPuts returns when no peer is placing bytes in memory of the program whose key has been revoked. A peer
// that does not end that in time is given up, and its process killed, unless it is known to run; while that
// does not end either, this process cannot go on.
func (d *Device) awaitPuts(e *entry) {
	sys.FullBarrier() // a Put that begins from now on finds the key gone
	if atomic.LoadUint64(&e.puts) == 0 {
		return
	}
	w := putWait{first: d.activeWriters(), last: time.Now()}
	for list := w.first; atomic.LoadUint64(&e.puts) != 0; list = d.activeWriters() {
		if len(list) == 0 || !d.probeWriters(&w) { // a counted peer has ended in the middle of a Put
			atomic.StoreUint64(&e.puts, 0)
			return
		}
	}
}

// awaitWriter returns when a peer that was found placing bytes has finished, or its process has ended. The
// connection with it has ended: what is posted completes after this, and nothing may be placed then. So a
// peer that does not finish in time is killed even if it is known to run.
func (d *Device) awaitWriter(p writer) {
	w := putWait{first: awaitWriters([]writer{p}), last: time.Now(), ending: true}
	for len(w.first) > 0 && d.probeWriters(&w) {
		w.first = awaitWriters(w.first)
	}
}

// putWait is a wait for the end of Puts.
type putWait struct {
	first  []writer // those that may be in one
	ending bool     // their connections have ended
	last   time.Time
	lasted time.Duration // with a peer that does not run, but for what this process may have stood still
	killed bool
	fatal  bool // Options.Fatal was called
}

// step notes that time has passed, which counts if a peer holds up the wait.
func (w *putWait) step(counts bool) {
	now := time.Now()
	if counts {
		w.lasted += min(now.Sub(w.last), 10*writerWait)
	}
	w.last = now
}

// probeWriters finds out which of the peers that a wait is for have ended, and kills those that are late and
// do not run. It reports whether any of them is still in the same copy.
func (d *Device) probeWriters(w *putWait) (writing bool) {
	prober, err := sys.NewProber()
	if err != nil {
		w.step(true)
		return true // the watcher of peers finds out
	}
	defer prober.Close()
	var still []*connection
	for _, l := range d.links(nil) {
		switch {
		case !slices.ContainsFunc(w.first, func(f writer) bool { return f.in == l.in && f.writing() }):
		case prober.Gone(l.wake):
			l.qp.peerGone()
		default:
			writing = true
			if w.killed || w.ending || !l.qp.running() {
				still = append(still, l)
			}
		}
	}
	if w.step(len(still) > 0); len(still) == 0 {
		return writing
	}
	kill := w.lasted >= d.copyTimeout() && !w.killed
	fatal := w.lasted >= d.opts.PeerTimeout && !w.fatal
	for _, l := range still {
		if kill {
			d.kill(l)
		}
		if fatal {
			d.endOver(l)
		}
	}
	w.killed, w.fatal = w.killed || kill, w.fatal || fatal
	return writing
}
