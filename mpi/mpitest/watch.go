package mpitest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// In the ranks' time, which stands still while any of them can go on, so these waits take no real time.
const (
	// quietAfter is the time without a moving message after which the ranks count as deadlocked. A timer that
	// calls a function, which the runtime does not show, may move something within that time.
	quietAfter = 30 * time.Second
	// longQuiet is quietAfter where a goroutine of the program may wait for a time. It may do so repeatedly.
	longQuiet = 2 * time.Hour
)

var errStuck = errors.New("deadlock")

// watch ends the job when nothing can move, and gives it up if that does not help. It returns when the ranks
// have ended.
func (j *job) watch(done <-chan struct{}) {
	moves, quiet := j.moves(), time.Duration(0)
	for {
		select {
		case <-done:
			return
		case <-time.After(max(quietAfter, quiet)):
			time.Sleep(time.Nanosecond) // others may have a timer for the same moment
		}
		if now := j.moves(); now != moves {
			moves, quiet = now, 0
			continue
		}
		quiet += max(quietAfter, quiet) // so that a long time takes few checks
		list := j.goroutines()
		if quiet < longQuiet && j.maySleep(list) {
			continue
		}
		if j.stuck(list) {
			return
		}
		moves, quiet = j.moves(), 0
	}
}

// allReturned reports whether all bodies have returned.
func (j *job) allReturned() bool {
	return !slices.ContainsFunc(j.ranks, func(r *rank) bool { return !r.returned.Load() && !r.ended.Load() })
}

// moves returns a number that changes whenever anything of the job moves.
func (j *job) moves() uint64 {
	n := uint64(j.ended.Load())
	for _, r := range j.ranks {
		if r.returned.Load() {
			n++
		}
		if made := r.place.Rank(); made != nil {
			n += made.Moves()
		}
	}
	return n
}

// stuck ends a job in which nothing can move. If that has been done before, it abandons the ranks that have
// not ended, and returns true.
func (j *job) stuck(list []ownGoroutine) (gaveUp bool) {
	j.mu.Lock()
	ending := j.cause != nil
	j.mu.Unlock()
	if ending {
		j.giveUp(list)
		return true
	}
	text := j.describe(list)
	if x := j.explored; x != nil {
		x.stuck(j)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, text)
	j.end(errStuck)
	return false
}

// describe returns what the ranks do, in the form of weft run's reports.
func (j *job) describe(list []ownGoroutine) string {
	state := make(deadlock.Job, len(j.ranks))
	var stuck []int
	for rank, r := range j.ranks {
		if r.ended.Load() {
			state[rank] = &snapshot.Rank{Rank: rank, Size: len(j.ranks), Phase: snapshot.Finished}
			continue
		}
		stuck = append(stuck, rank)
		if made := r.place.Rank(); made != nil {
			state[rank] = made.Snapshot()
		} else {
			state[rank] = &snapshot.Rank{Rank: rank, Size: len(j.ranks), Phase: snapshot.NotBegun}
		}
		waits := map[uint64]bool{}
		for i := range state[rank].Waits {
			state[rank].Waits[i].Since = 0 // the ranks' time means nothing
			waits[state[rank].Waits[i].Goroutine] = true
		}
		for _, g := range list {
			if g.rank == r && !waits[g.ID] && g.Owner == program.OfProgram && state[rank].At == "" {
				state[rank].At, state[rank].Call = fmt.Sprintf("%s [%s]", g.where(), g.State), g.Call
			}
		}
	}
	title := deadlock.Title(stuck, len(j.ranks))
	for i := range list {
		if list[i].State == "sleep" && list[i].Caller == program.OfProgram {
			title = fmt.Sprintf("no message has moved for %v of the ranks' time; what the ranks do",
				longQuiet)
		}
	}
	return strings.Join(append([]string{title}, state.Report()...), "\n")
}

// giveUp abandons the ranks that do not end though their calls fail and their contexts have ended.
func (j *job) giveUp(list []ownGoroutine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.ranks {
		if r.ended.Load() {
			continue
		}
		line := "the body does not return, though the job has ended"
		for _, g := range list {
			if g.ID == r.goroutine.Load() {
				line += fmt.Sprintf(": it waits at %s [%s], and not for its context", g.where(), g.State)
			}
		}
		r.lines = append(r.lines, line)
	}
	j.left = true
	close(j.gaveUp)
}

// ownGoroutine is a goroutine of the job's bubble.
type ownGoroutine struct {
	program.Goroutine

	rank *rank // the rank that started it, directly or not; nil if unknown
}

// where returns the line of the program at which a goroutine is, or was started.
func (g *ownGoroutine) where() string { return cmp.Or(g.Site, g.Began, g.Function) }

// goroutines returns the bubble's goroutines that did not exist before the job, except the caller's. Without
// a bubble, it returns those of the program that a rank is known to have started.
func (j *job) goroutines() (list []ownGoroutine) {
	all, byID := everyGoroutine()
	self := program.GoroutineID()
	bubble := byID[self].Bubble
	for _, g := range all {
		if g.Bubble != bubble || g.ID == self || j.before[g.ID] {
			continue
		}
		own := ownGoroutine{g, j.rankOf(g, byID)}
		if j.real && (own.rank == nil || g.Owner != program.OfProgram) {
			continue // others may be outside bubbles, too
		}
		list = append(list, own)
	}
	return list
}

// everyGoroutine returns the goroutines of the process, also by number.
func everyGoroutine() (all []program.Goroutine, byID map[uint64]program.Goroutine) {
	all, _ = program.Goroutines()
	byID = map[uint64]program.Goroutine{}
	for _, g := range all {
		byID[g.ID] = g
	}
	return all, byID
}

// rankOf returns the rank that has started a goroutine, if those in between still exist.
func (j *job) rankOf(g program.Goroutine, byID map[uint64]program.Goroutine) *rank {
	for known := true; known; g, known = byID[g.Parent] {
		for _, r := range j.ranks {
			if g.ID == r.goroutine.Load() || g.Parent == r.goroutine.Load() {
				return r
			}
		}
	}
	return nil
}

// maySleep reports whether a goroutine of the program may wait for a time: it sleeps, waits on a channel that
// may be a timer's, or waits in a call that ends with a context.
func (j *job) maySleep(list []ownGoroutine) bool {
	for i := range list {
		switch list[i].State {
		case "sleep", "select", "chan receive":
			if list[i].Caller == program.OfProgram {
				return true
			}
		}
	}
	if j.turns.anyPolls() {
		return true
	}
	for _, r := range j.ranks {
		if made := r.place.Rank(); made != nil && !r.ended.Load() {
			for _, w := range made.Snapshot().Waits {
				if w.Bounded {
					return true
				}
			}
		}
	}
	return false
}

// findGoroutines records the goroutines that are left when the ranks have ended.
func (j *job) findGoroutines() {
	list := j.goroutines()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, g := range list {
		j.left = true
		line := fmt.Sprintf("a goroutine outlives the body: it was started at %s, and is at %s [%s]",
			cmp.Or(g.Began, "an unknown line"), g.where(), g.State)
		if g.rank == nil {
			j.lines = append(j.lines, line)
		} else {
			g.rank.lines = append(g.rank.lines, line)
		}
	}
}

// busyFor is how long goroutines of the program may run after the bodies have returned. One that blocks in a
// system call stops the clock, so the ranks do not end, either.
var busyFor = 10 * time.Second

const (
	// firstLook is the time after which a job that has not moved is checked from outside, and longestLook the
	// longest time between two checks.
	firstLook, longestLook = 20 * time.Millisecond, time.Second
	// stoppedFor and longStopped are how long a job's clock must stand still before the job is abandoned:
	// longStopped if goroutines outside the bubble may release the ranks. On a busy machine one that holds a
	// lock for a moment may not run for some time.
	stoppedFor, longStopped = 300 * time.Millisecond, 2 * time.Second
	// beforeDeadline is the time before the deadline of the tests at which the ranks' states are printed.
	beforeDeadline = 3 * time.Second
)

// watchFromOutside watches a job in real time, from outside the bubble, for anything that prevents the
// bubble's end: ranks that wait for a sync.Mutex and stop the clock, goroutines that run on after the bodies
// have returned, and ranks that are not done at the deadline of the tests. It returns a function that ends
// it.
func (j *job) watchFromOutside() (end func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	deadline, bounded := j.t.Deadline()
	go func() {
		defer close(gone)
		var busy, stuck time.Duration
		moved, ended := uint64(0), int32(0)
		for wait := firstLook; ; {
			select {
			case <-over:
				return
			case <-time.After(wait):
			}
			if now := j.turns.given.Load() + j.told.Load(); now != moved {
				moved, wait, stuck = now, firstLook, 0
			} else if list, others := j.seenFromOutside(); j.clockStopped(list) {
				if stuck += wait; stuck > longStopped || stuck > stoppedFor && !others {
					j.abandon(list)
					return
				}
			} else {
				wait, stuck = min(2*wait, longestLook), 0
			}
			if now := j.ended.Load(); j.real || !j.allReturned() || now != ended {
				busy, ended = 0, now
			} else {
				busy += wait
			}
			switch {
			case busy >= busyFor:
				panic(fmt.Sprintf("mpitest: %s: the bodies have returned, and goroutines that they "+
					"have started run on:\n%s", j.t.Name(), j.running()))
			case bounded && time.Until(deadline) < beforeDeadline:
				fmt.Fprintf(os.Stderr, "mpitest: %s comes to the deadline of the tests:\n%s", j.t.Name(),
					j.running())
				return
			}
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

// seenFromOutside returns the goroutines of the job's bubble, and whether any others may act and release the
// ranks.
func (j *job) seenFromOutside() (list []ownGoroutine, others bool) {
	bubble, begun := j.bubble.Load().(string)
	if !begun || j.real {
		return nil, true
	}
	all, byID := everyGoroutine()
	self := program.GoroutineID()
	for _, g := range all {
		switch {
		case g.Bubble == bubble:
			list = append(list, ownGoroutine{g, j.rankOf(g, byID)})
		case g.ID != self && g.Function != playFunction && !g.Durable && g.MayAct() && !abandoned(g.Bubble):
			others = true
		}
	}
	return list, others
}

// bubbles has the abandoned bubbles, by number.
var bubbles sync.Map

func abandoned(bubble string) bool {
	_, is := bubbles.Load(bubble)
	return is
}

// playFunction is the function in which the test waits for its job.
const playFunction = program.Module + "mpi/mpitest.(*job).play"

// clockStopped reports whether all goroutines of a bubble wait, and one of them in a way that stops its
// clock: for a mutex, or on a channel that was made outside.
func (j *job) clockStopped(list []ownGoroutine) bool {
	stopped := false
	for i := range list {
		switch g := &list[i]; {
		case g.Durable:
		case g.waitsForMutex(), g.State == "chan receive", g.State == "chan send", g.State == "select":
			stopped = true
		default:
			return false
		}
	}
	return stopped
}

func (g *ownGoroutine) waitsForMutex() bool {
	return strings.HasPrefix(g.State, "sync.Mutex") || strings.HasPrefix(g.State, "sync.RWMutex")
}

// abandon leaves the bubble of a job as it is, when all its goroutines wait while its clock stands still.
// This is a deadlock, unless one of them could go on if the clock did.
func (j *job) abandon(list []ownGoroutine) {
	var stuck []int
	var lines []string
	waits, mutex, sleeps := "", false, false
	for number, r := range j.ranks {
		if r.ended.Load() {
			continue
		}
		stuck = append(stuck, number)
		for i := range list {
			g := &list[i]
			if g.rank != r || g.Owner != program.OfProgram {
				continue
			}
			what := cmp.Or(g.Call, g.State)
			lines = append(lines, fmt.Sprintf("  rank %d: %s, at %s", number, what, g.where()))
			if !g.Durable && waits == "" {
				waits = fmt.Sprintf("rank %d waits at %s [%s]", number, g.where(), g.State)
				mutex = g.waitsForMutex()
			}
			sleeps = sleeps || g.State == "sleep"
		}
	}
	if waits == "" { // it is none of the program's that stops the clock
		for i := range list {
			if g := &list[i]; !g.Durable {
				lines = append(lines, fmt.Sprintf("  a goroutine waits in %s [%s]", g.Function, g.State))
			}
		}
	}
	title := deadlock.Title(stuck, len(j.ranks))
	switch {
	case mutex && j.turns.arrived != nil: // ranks take turns, and others may go on with the next turn
		title = waits + ", and no rank has a turn while one waits so. A mutex that others wait for must " +
			"not be held during a call of MPI, but with mpitest.Concurrent, which also proves a deadlock. " +
			"What the ranks do:"
	case sleeps:
		title = waits + ", and the ranks' clock stands still while one waits so: a goroutine that sleeps " +
			"does not wake. What the ranks do:"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, title+"\n"+strings.Join(lines, "\n"))
	j.left = true
	bubbles.Store(j.bubble.Load(), true)
	close(j.abandoned)
}

// running returns where the bodies and the goroutines that they have started are. It is called from outside
// the bubble, and must not ask its ranks.
func (j *job) running() string {
	all, byID := everyGoroutine()
	var text strings.Builder
	for _, r := range j.ranks {
		if r.ended.Load() {
			fmt.Fprintf(&text, "  rank %d: has ended\n", r.number)
		}
		for _, g := range all {
			if own := (ownGoroutine{g, j.rankOf(g, byID)}); own.rank == r && g.Owner == program.OfProgram {
				fmt.Fprintf(&text, "  rank %d: %s [%s]\n", r.number, own.where(), g.State)
			}
		}
	}
	return text.String()
}
