package shm

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// awaitPuts returns when no peer is placing bytes in the program's memory whose key has been revoked. A peer
// that does not finish in time is given up and its process killed, unless it is known to run. If that does
// not end the Put either, this process cannot continue.
func (d *Device) awaitPuts(e *entry) {
	sys.FullBarrier() // a Put that begins from now on does not find the key
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
// connection with it has ended: posted requests complete after this, and nothing may be placed then. So a
// peer that does not finish in time is killed even if it is known to run.
func (d *Device) awaitWriter(p writer) {
	w := putWait{first: awaitWriters([]writer{p}), last: time.Now(), ending: true}
	for len(w.first) > 0 && d.probeWriters(&w) {
		w.first = awaitWriters(w.first)
	}
}

// putWait is the state of a wait for Puts to end.
type putWait struct {
	first  []writer // peers that may be in a Put
	ending bool     // their connections have ended
	last   time.Time
	lasted time.Duration // held up by a peer that does not run, without pauses of this process
	killed bool
}

// step adds the elapsed time to lasted, if counts is set.
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
		return true // the watcher will find out
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
			if w.killed || w.ending || !l.qp.heartbeat.running() {
				still = append(still, l)
			}
		}
	}
	if w.step(len(still) > 0); len(still) == 0 {
		return writing
	}
	kill := w.lasted >= d.copyTimeout() && !w.killed
	fatal := w.lasted >= d.opts.PeerTimeout
	for _, l := range still {
		if kill {
			d.kill(l)
		}
		if fatal {
			d.endOver(l)
		}
	}
	w.killed = w.killed || kill
	return writing
}
