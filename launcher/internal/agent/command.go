package agent

import (
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/pmi"
)

// A Command is one of the types below that have the method command.
type Command interface{ command() }

// Start starts ranks, one after the other in this order. It comes once. Each rank leads a session of its own,
// is tied to the agent's life, and finds in its environment its own Env, the agent's, and where its PMI
// connection and the job's secret are.
type Start struct {
	Secret     []byte        // which every rank reads from a pipe
	TimerSlack time.Duration // if not 0: of the ranks' timers (ADR 0069)
	PMI        pmi.Config    // what the ranks are told of the job
	Ranks      []Rank
}

// Rank says how to start one rank.
type Rank struct {
	ID    int    // in the job
	App   int    // the number of its program among those of the job
	Name  string // of the program as the user wrote it; argv[0]
	Path  string // of the file to execute on this host
	Args  []string
	Env   []string // NAME=VALUE, which override the agent's own environment
	Dir   string   // where the rank starts; empty means where the agent runs
	CPUs  []int    // the processors that it is bound to; nil means all that the agent may use
	Stdin Stdin
	Files [Streams]string // the files that take its output; where empty, the output comes as events
}

// Stdin says where a rank's standard input comes from.
type Stdin uint8

const (
	StdinNone Stdin = iota // /dev/null
	StdinFed               // Input commands
	// the agent's own descriptor, so that only what the rank reads is used up; local agents only
	StdinInherit
)

// Stream is one of a rank's two streams of output.
type Stream uint8

const (
	Stdout Stream = iota
	Stderr
	Streams = 2 // how many there are
)

func (s Stream) String() string { return [...]string{"standard output", "standard error"}[s] }

// Halt keeps ranks that are not started yet from being started.
type Halt struct{}

// Signal sends a signal to the process groups of ranks. A rank that is just being started gets it when it has
// started.
type Signal struct {
	Ranks  []int // nil means all
	Signal syscall.Signal
}

// Release says that all ranks of the job wait in the PMI barrier, and releases the agent's ranks.
type Release struct{}

// Found answers Find.
type Found struct {
	Rank       int // of Find
	Key, Value string
	OK         bool // there is such a key
}

// TellWaits asks for Waits of each rank that waits in a barrier of PMI, now and from now on: some rank may
// not come.
type TellWaits struct{}

// HangUp closes a rank's PMI connection. PMIClosed follows.
type HangUp struct{ Rank int }

// Input hands a rank the next part of its standard input, or its end where Data is empty. InputTaken follows
// each part, and only then may the next one be sent.
type Input struct {
	Rank int
	Data []byte
}

// Pause stops or resumes the reading of a stream of all ranks, so that they wait when their pipes are full.
// Output that was already read is still reported, and so is what is in the pipes of ranks that end.
type Pause struct {
	Stream Stream
	On     bool
}

// Ask asks ranks for what a byte of package snapshot stands for: a snapshot of what they wait for, a sample
// (their counters and current calls, for weft top), or stacks. An Answer, a Sampled or an Artifact follows
// from each that can answer.
type Ask struct {
	Ranks    []int
	Question byte
}

// Records asks for the flight recorders of ranks, which hold their last communication events (package
// recorder), also of ranks that have ended. Recorded follows from each.
type Records struct{ Ranks []int }

// Failed tells all ranks that one of them has failed and that the job goes on without it.
type Failed struct{ Rank int }

func (Start) command()     {}
func (Halt) command()      {}
func (Signal) command()    {}
func (Release) command()   {}
func (Found) command()     {}
func (TellWaits) command() {}
func (HangUp) command()    {}
func (Input) command()     {}
func (Pause) command()     {}
func (Ask) command()       {}
func (Records) command()   {}
func (Failed) command()    {}
