package supervisor

import (
	"container/heap"
	"time"
)

// A timer is a future event. Obsolete timers are ignored when they expire.
type timer struct {
	at   time.Time
	kind timerKind
	rank int // of pmiOverdue, lingering and stoppedLong
}

type timerKind uint8

const (
	pmiOverdue  timerKind = iota // a rank has exited, and its PMI connection is still open
	lingering                    // a rank's PMI connection has closed without Finalize, and it goes on
	stoppedLong                  // a rank has been stopped for some time
	debounced                    // the best explanation becomes the cause
	othersSlow                   // ranks that have called Abort wait no longer for the others to end
	graceOver                    // SIGKILL follows SIGTERM
	killOverdue                  // processes that SIGKILL has not ended are left to the kernel
	jobTimeout                   // the job has reached its time limit
	unread                       // output of an ended job has not been read for some time
)

// timers is a heap.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

func (t *timers) add(at time.Time, kind timerKind, rank int) { heap.Push(t, timer{at, kind, rank}) }

// due removes and returns an expired timer.
func (t *timers) due(now time.Time) (timer, bool) {
	if len(*t) == 0 || (*t)[0].at.After(now) {
		return timer{}, false
	}
	return heap.Pop(t).(timer), true
}
