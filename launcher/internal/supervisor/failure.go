package supervisor

import (
	"fmt"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
)

// How says in which way a job failed. Package launcher exports the constants, and describes them.
type How uint8

const (
	Exited How = iota
	Killed
	Unfinished
	Stranded
	Aborted
	Disturbed
	Silent
	Stopped
	Interrupted
	TimedOut
	Cancelled
	OutputLost
	ReaderGone
	Deadlocked
	AgentLost
	HostLost
	RanksLost
)

// Failure is the cause of a job's failure: the first one in time, as far as can be known.
type Failure struct {
	How     How
	Rank    int // the failed rank; -1 for none
	PID     int
	Host    string
	Program string
	Status  int            // exit status of Exited and Aborted; for Stopped, of the rank that has failed
	Signal  syscall.Signal // of Killed, Interrupted, Stopped
	// the rest of the line for Stranded, Disturbed, Stopped, HostLost, and for failures without a rank
	Detail string
}

// ExitStatus returns the exit status for the launcher's process.
func (f *Failure) ExitStatus() int {
	switch f.How {
	case Exited, Aborted, Stopped:
		// A status of 0 modulo 256 would mean success.
		return max(f.Status&0xff, 1)
	case Killed, Interrupted:
		return 128 + int(f.Signal)
	case ReaderGone:
		return 128 + int(syscall.SIGPIPE)
	case TimedOut:
		return 124
	case RanksLost:
		return 3
	}
	return 1
}

func (f *Failure) Error() string {
	who := f.who()
	switch f.How {
	case Exited:
		return fmt.Sprintf("%s exited with status %d", who, f.Status)
	case Killed:
		return fmt.Sprintf("%s was killed by signal %d (%s)", who, int(f.Signal), sys.SignalName(f.Signal))
	case Unfinished:
		return who + " exited with status 0 after Init and without Finalize (os.Exit in the body of Run?)"
	case Aborted:
		return fmt.Sprintf("%s ended the job with status %d", who, f.Status)
	case Silent:
		return who + " closed its PMI connection without Finalize"
	case Stopped:
		return fmt.Sprintf("%s is stopped (%s), %s", who, sys.SignalName(f.Signal), f.Detail)
	case Interrupted:
		return "ended by " + sys.SignalName(f.Signal)
	case Stranded, Disturbed, HostLost:
		return who + " " + f.Detail
	}
	return f.Detail
}

// who names the failed rank with its host and process.
func (f *Failure) who() string {
	return fmt.Sprintf("rank %d on %s (pid %d, %s)", f.Rank, f.Host, f.PID, f.Program)
}
