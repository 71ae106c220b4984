package launcher

import (
	"fmt"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// How says in which way a job failed.
type How uint8

const (
	Exited      How = iota // the rank ended with a status other than 0
	Killed                 // a signal ended the rank
	Unfinished             // the rank ended with status 0 between Init and Finalize
	Stranded               // another rank waits in a barrier that this one can no longer join
	Aborted                // the rank asked for the end of the job
	Disturbed              // the rank broke the PMI protocol
	Silent                 // the rank closed its PMI connection without Finalize, and goes on
	Interrupted            // a signal that the launcher passed on ended the rank
	TimedOut               // the job took longer than it may
	Cancelled              // the caller of Run has cancelled it
)

// Failure is the cause of a job's failure: the first one in time, as far as can be known.
type Failure struct {
	How     How
	Rank    int // who failed; -1 when it was no rank's doing
	PID     int
	Host    string
	Program string
	Status  int            // the exit status of Exited, Aborted
	Signal  syscall.Signal // of Killed, Interrupted
	Detail  string         // the rest of the line for Stranded, Disturbed, TimedOut, Cancelled
}

// ExitStatus is what the launcher's process should exit with.
func (f *Failure) ExitStatus() int {
	switch f.How {
	case Exited, Aborted:
		// A status of 0 modulo 256 would tell of success.
		return max(f.Status&0xff, 1)
	case Killed, Interrupted:
		return 128 + int(f.Signal)
	case TimedOut:
		return 124
	}
	return 1
}

func (f *Failure) Error() string {
	who := fmt.Sprintf("rank %d on %s (pid %d, %s)", f.Rank, f.Host, f.PID, f.Program)
	switch f.How {
	case Exited:
		return fmt.Sprintf("%s exited with status %d", who, f.Status)
	case Killed:
		return fmt.Sprintf("%s was killed by signal %d (%s)", who, int(f.Signal), sys.SignalName(f.Signal))
	case Unfinished:
		return who + " exited with status 0 after Init and without Finalize"
	case Aborted:
		return fmt.Sprintf("%s ended the job with status %d", who, f.Status)
	case Silent:
		return who + " closed its PMI connection without Finalize"
	case Interrupted:
		return "ended by " + sys.SignalName(f.Signal)
	case Stranded, Disturbed:
		return who + " " + f.Detail
	}
	return f.Detail
}

// A weight says how well a failure explains the others. Ranks end in a chain: one dies, its peers' connections break, they give
// up. The kernel closes a process's connections before it tells of the process's end, so the end of a peer can be known first.
type weight uint8

const (
	root    weight = iota // nothing that another rank does brings this about: it is the cause
	likely                // the cause, unless a root turns up soon
	reflect               // what happens to a rank whose peers are gone: surely another is the cause
)

func (f *Failure) weight() weight {
	switch f.How {
	case Killed:
		switch f.Signal {
		case syscall.SIGPIPE:
			return reflect
		case syscall.SIGABRT:
			return likely
		}
		return root
	case Exited, Unfinished, Stranded, Aborted, Silent:
		return likely
	}
	return root
}

// patience is how long to wait for a better explanation.
func (w weight) patience() time.Duration {
	switch w {
	case likely:
		return 50 * time.Millisecond
	case reflect:
		return 500 * time.Millisecond
	}
	return 0
}

// A verdict finds the cause among the failures of a job.
type verdict struct {
	best *Failure // the first in time of the least weight
}

// add takes the next failure, in the order of time. It returns how long to wait for a better one, and whether this one is the best.
func (v *verdict) add(f *Failure) (wait time.Duration, better bool) {
	if v.best != nil && v.best.weight() <= f.weight() {
		return 0, false
	}
	v.best = f
	return f.weight().patience(), true
}
