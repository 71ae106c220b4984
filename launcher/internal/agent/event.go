package agent

import (
	"syscall"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/snapshot"
)

// An Event is one of the types below that have the method event.
type Event interface{ event() }

// Started says that a rank's program is being executed.
type Started struct{ Rank, PID int }

// NotStarted says that a rank could not be started, and that no further one will be.
type NotStarted struct {
	Rank   int
	Status int    // the exit status that a shell would give where the program is to blame: 126 or 127; else 0
	Reason string // complete, for the user
}

// AllStarted says that no further rank will be started.
type AllStarted struct{}

// Exited says that a rank's process has ended. What was left of its process group has been killed.
type Exited struct {
	Rank   int
	Status syscall.WaitStatus
	State  pmi.State // how far it has come
}

// Stopped says that a signal has stopped a rank.
type Stopped struct {
	Rank   int
	Signal syscall.Signal
}

// Continued says that a stopped rank goes on.
type Continued struct{ Rank int }

// Output is what a rank has written to a stream.
type Output struct {
	Rank   int
	Stream Stream
	Data   []byte // the receiver owns it
}

// OutputEnd says that no more output of a rank comes.
type OutputEnd struct{ Rank int }

// Arrived says that all ranks of the agent wait in a PMI barrier, and what they have put since the last one.
type Arrived struct {
	Rank int      // the first of them
	Puts []string // keys and values in turn
	More bool     // another Arrived with further keys follows, and counts
}

// Find requests a key that no rank of the agent has put. Found answers it.
type Find struct {
	Rank int // any of the agent's
	Key  string
}

// Waits says, after TellWaits, that a rank waits in a PMI barrier.
type Waits struct {
	Rank    int
	Barrier int // how many Release commands had come before
}

// Aborts says that a rank requests the end of the job.
type Aborts struct{ Rank, Status int }

// LostPeer says that a rank has lost another one, or has heard that one is lost.
type LostPeer struct {
	Rank int
	Peer int // -1: unknown
}

// Disturbs says that a rank has violated the PMI protocol. The rank waits for an answer that will not come.
type Disturbs struct {
	Rank int
	What string
}

// PMIClosed says that a rank's PMI connection has ended.
type PMIClosed struct {
	Rank  int
	State pmi.State // how far it has come
}

// InputTaken says that a rank has received the last Input.
type InputTaken struct {
	Rank   int
	Closed bool // it takes no more
}

// Quiet says that goroutines of a rank wait in calls of weft, and that none of its messages has moved for a
// while. It comes again when the number of these goroutines changes.
type Quiet struct{ Rank int }

// Moving says that messages of a rank that was quiet move again.
type Moving struct{ Rank int }

// Answer is the requested snapshot of a rank.
type Answer struct {
	Rank     int
	Snapshot []byte // encoded, as package snapshot has it; not checked
}

// Sampled is the requested sample of a rank: its counters and current calls, for weft top.
type Sampled struct {
	Rank   int
	Sample []byte // encoded, as package snapshot has it; not checked
}

// Recorded has the contents of a rank's flight recorder, its last communication events, in package recorder's
// format; not checked.
type Recorded struct {
	Rank   int
	Events []byte // empty if the rank has no recorder
}

// Artifact is a part of an artifact of a rank: a profile, its call sites, its trace or its stacks.
type Artifact struct {
	Rank int
	What snapshot.Artifact
	Last bool // part of it
	Data []byte
}

// Lost says that the agent itself is gone, and with it all knowledge of its ranks. No event of theirs
// follows. A local agent is never lost.
type Lost struct {
	Ranks  []int
	Reason string // complete, for the user
	Silent bool   // it is silent: it and its ranks may run until it ends them
	OfAll  bool   // the starter of all agents has ended: nothing is known to be wrong with this host
	// AllStarted had not been reported, and will not be.
	Starting bool
}

func (Started) event()    {}
func (NotStarted) event() {}
func (AllStarted) event() {}
func (Exited) event()     {}
func (Stopped) event()    {}
func (Continued) event()  {}
func (Output) event()     {}
func (OutputEnd) event()  {}
func (Arrived) event()    {}
func (Find) event()       {}
func (Waits) event()      {}
func (Aborts) event()     {}
func (LostPeer) event()   {}
func (Disturbs) event()   {}
func (PMIClosed) event()  {}
func (InputTaken) event() {}
func (Quiet) event()      {}
func (Moving) event()     {}
func (Answer) event()     {}
func (Sampled) event()    {}
func (Recorded) event()   {}
func (Artifact) event()   {}
func (Lost) event()       {}
