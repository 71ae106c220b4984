package mpitest

import (
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// A job over a real fabric is not in a bubble: it is watched as a launcher watches its processes.

const (
	// lookEvery is the interval between checks of the ranks.
	lookEvery = 50 * time.Millisecond
	// unmovedAfter is the time without progress after which the test fails without a proof of a deadlock.
	unmovedAfter = 10 * time.Second
	// goWithin is how long goroutines of the program may take to end when the bodies have returned.
	goWithin = time.Second
)

// returnWithin is how long bodies may take to return when the job has ended.
var returnWithin = 10 * time.Second

// watchReal ends the job when nothing can ever move, and gives it up if that does not help. It returns when
// the ranks have ended.
func (j *job) watchReal(done <-chan struct{}) {
	d := deadlock.NewDetector(len(j.ranks), unmovedAfter)
	n := len(j.ranks)
	moves, quiet, ended := make([]uint64, n), make([]bool, n), make([]bool, n)
	ending := time.Duration(0)
	for ticker := time.NewTicker(lookEvery); ; {
		select {
		case <-done:
			ticker.Stop()
			return
		case <-ticker.C:
		}
		if j.hasCause() {
			if ending += lookEvery; ending > returnWithin {
				j.giveUp(j.goroutines())
				return
			}
			continue
		}
		now := time.Now()
		for i, r := range j.ranks {
			made := r.place.Rank()
			switch {
			case ended[i] || made == nil:
			case r.ended.Load():
				ended[i] = true
				d.Ended(now, i)
			case made.Moves() != moves[i]:
				moves[i], quiet[i] = made.Moves(), false
				d.Moving(i)
			case !quiet[i]:
				quiet[i] = true
				d.Quiet(now, i)
			}
		}
		d.Tick(now)
		ask, reports := d.Ready()
		for _, i := range ask {
			d.Answer(time.Now(), i, j.snapshot(j.ranks[i]))
		}
		_, more := d.Ready()
		for _, report := range append(reports, more...) {
			j.found(&report)
		}
	}
}

// snapshot describes what a rank does, including its goroutines outside of calls.
func (j *job) snapshot(r *rank) *snapshot.Rank {
	s := r.place.Rank().Snapshot()
	waits := map[uint64]bool{}
	for _, w := range s.Waits {
		waits[w.Goroutine] = true
	}
	for _, g := range j.goroutines() {
		if g.rank != r || waits[g.ID] || !g.MayAct() {
			continue
		}
		s.Active++
		if s.At == "" {
			s.At, s.Call = g.where(), g.Call
		}
	}
	if s.Active == 0 {
		s.Later = program.Later()
	}
	return s
}

// found handles a report of the detector.
func (j *job) found(report *deadlock.Report) {
	text := report.Title
	for _, line := range report.Lines {
		text += "\n" + line
	}
	if !report.Proven {
		j.t.Log(text)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, text)
	j.end(errStuck)
}

func (j *job) hasCause() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cause != nil
}

// awaitGoroutines waits for a while for goroutines that end with the bodies.
func (j *job) awaitGoroutines() {
	for wait := 100 * time.Microsecond; wait < goWithin && len(j.goroutines()) > 0; wait *= 2 {
		time.Sleep(wait)
	}
}
