package shm

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// awaitPuts returns when no peer is placing bytes in memory of the program whose key has been revoked. A peer
// that does not end that in time is given up, and its process killed; while that does not end either, this
// process cannot go on.
func (d *Device) awaitPuts(e *entry) {
	sys.FullBarrier() // a Put that begins from now on finds the key gone
	if atomic.LoadUint64(&e.puts) == 0 {
		return
	}
	w := putWait{first: d.activeWriters(), last: time.Now()}
	for list := w.first; atomic.LoadUint64(&e.puts) != 0; list = d.activeWriters() {
		if len(list) == 0 || !d.probeWriters(&w) { // who was counted has ended in the middle
			atomic.StoreUint64(&e.puts, 0)
			return
		}
	}
}

// putWait is a wait for the end of Puts.
type putWait struct {
	first  []writer // those that may be in one
	last   time.Time
	lasted time.Duration // but for what this process itself may have stood still
	killed bool
	fatal  bool // Options.Fatal was called
}

// step notes that time has passed.
func (w *putWait) step() {
	now := time.Now()
	w.lasted += min(now.Sub(w.last), 10*writerWait)
	w.last = now
}

// probeWriters finds out which of the peers that a wait is for have ended, and kills those that are late. It
// tells whether any of them is still in the same copy.
func (d *Device) probeWriters(w *putWait) (writing bool) {
	w.step()
	prober, err := sys.NewProber()
	if err != nil {
		return true // the watcher of peers finds out
	}
	defer prober.Close()
	kill := w.lasted >= d.copyTimeout() && !w.killed
	fatal := w.lasted >= d.opts.PeerTimeout && !w.fatal
	for _, l := range d.links(nil) {
		if !slices.ContainsFunc(w.first, func(f writer) bool { return f.in == l.in && f.writing() }) {
			continue
		}
		if prober.Gone(l.wake) {
			l.qp.peerGone()
			continue
		}
		writing = true
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
