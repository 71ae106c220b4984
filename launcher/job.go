// Package launcher starts the ranks of a job on one or more hosts, binds them to cores and serves them PMI.
// It forwards their standard input and output and signals. When a rank fails, it ends the job and prints one
// line that says which rank failed, where and how.
//
// Package supervisor, a state machine without I/O, makes the decisions about a job. An agent runs the job's
// processes on one host: package agent defines the interface between the two, and package local is the agent
// of this host. Package launcher connects them with each other and with the user: standard input and output,
// signals, time.
//
// No process of a job outlives it, unless the kernel does not let a killed one end. Each rank leads a
// session. When the rank ends, the launcher kills the rest of its process group; at the end of the job it
// kills the processes that have left the group. Ranks die with the launcher's process. If the launcher is
// killed before it can clean up, a second process, the watchdog, kills the remaining ones.
package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/outfile"
	"github.com/weft-mpi/weft/launcher/internal/build"
	"github.com/weft-mpi/weft/launcher/internal/output"
)

// Job describes what to run and how.
type Job struct {
	Apps []App // the programs; ranks are numbered through them in this order

	// Hosts are the hosts on which ranks run; none means this host alone. With hosts, a job's only program
	// may have Ranks 0: it gets as many ranks as there are slots.
	Hosts     []Host
	MapBy     Mapping
	Starter   []string // the command that starts an agent (see ParseStarter); nil means ssh
	AgentPath string   // path of weft on the other hosts; empty means the path of this program
	// FanOut is how many agents the launcher, and each agent, starts; 0 means 64. If there are more hosts,
	// agents start those of further hosts, with the same starter, and relay their streams.
	FanOut int
	// Stage copies programs to the hosts that do not have them, or have different ones under their names. The
	// copies are removed when the job ends.
	Stage bool

	// Env are variables, NAME=VALUE, for all ranks. A rank on this host also gets this process's environment.
	// A rank on another host gets that of its agent, with weft's settings in this process's.
	Env     []string
	BindTo  Binding
	CQCores CQCores
	// CoresPerRank is how many cores each rank gets; 0 means one with BindCore and BindList, and otherwise
	// its share of the cores that the job can use.
	CoresPerRank int
	// Endpoints is how many endpoints each rank has: message engines that are independent of one another,
	// each with its own lock, connections and progress (MPICH calls them VCIs). EndpointsAuto is one for each
	// core of the rank that has the fewest; 0 leaves that to WEFT_ENDPOINTS, whose default is auto.
	Endpoints int
	Stdin     Input
	Label     bool // put "[rank] " before every line
	// if not empty: a folder for files rank.N.out and rank.N.err, which receive the ranks' output instead
	OutputDir string
	Timeout   time.Duration // if not 0: the longest time that the job may take
	Grace     time.Duration // time between SIGTERM and SIGKILL when the job is ended; 0 means 2 s
	Verbose   bool          // report on standard error what is started where, and when
	// DryRun finds and plans everything, on all hosts, shows on standard output which cores the ranks would
	// get, and starts no rank.
	DryRun bool
	// JSON has DryRun show it as JSON.
	JSON bool
	// report on standard error where each rank is, what it is bound to, and where its completion handlers
	// run: the threads that serve its endpoints' completion queues outside of calls
	ReportBindings bool
	// Stuck is how long no message may move before the launcher reports what the ranks wait for. A certain
	// deadlock is reported at once. 0 means never.
	Stuck time.Duration
	// Survive lets the job go on when a rank fails. Run then returns an error of kind RanksLost at its end.
	Survive bool
	// Restarts is how often the job is restarted when a rank or a host is lost, with as many ranks, on the
	// remaining hosts. See supervisor.Restartable for what counts as lost.
	Restarts int
	// Min is the smallest number of ranks of a restart, if there are too few slots. If it is 0, the number
	// stays the same, and ranks share cores.
	Min int
	// StuckAction says what the launcher does about a job that hangs, besides its report; empty means
	// OnlyReport.
	StuckAction StuckAction
	// Report prints at the end how often each rank made calls at each place in the program, and for how long.
	Report bool
	// if not empty: the kind of profile (cpu, heap, block, mutex), and the one file for all ranks
	Profile, ProfileFile string
	// if not empty: the file for the trace of all ranks
	Trace   string
	MaxLine int // lines of different ranks never mix up to this many bytes; 0 means DefaultMaxLine

	// Sole says that this process starts nothing but this job: every child that it gets belongs to the job.
	// Only then does the launcher find descendants that have left both their rank's session and its
	// environment.
	Sole bool

	// The launcher's own standard input and output, and standard error. It never makes them non-blocking. Nil
	// means /dev/null.
	In, Out, Err *os.File
}

// App is one program of a job.
type App struct {
	Ranks   int
	Program string   // a command, a file, or a Go package that is built first
	Args    []string // without the program's name
	Env     []string // NAME=VALUE, added to the job's environment
	Dir     string   // the folder in which the ranks start; empty means the current one
}

// StuckAction is what is done about a job that hangs.
type StuckAction = deadlock.Action

const (
	OnlyReport = deadlock.OnlyReport
	// AbortStuck ends the job when a deadlock is certain.
	AbortStuck = deadlock.Abort
	// AbortUnmoved also ends the job when nothing has moved for Job.Stuck, although that proves nothing.
	AbortUnmoved = deadlock.AbortUnmoved
)

// ParseStuckAction parses the value of --stuck-action.
func ParseStuckAction(text string) (StuckAction, error) { return deadlock.ParseAction(text) }

// Input says which ranks get the launcher's standard input: InputNone, InputAll, or the number of one rank.
type Input int

const (
	InputNone Input = -1
	InputAll  Input = -2
)

// ParseInput parses the value of --stdin.
func ParseInput(text string) (Input, error) {
	switch text {
	case "none":
		return InputNone, nil
	case "all":
		return InputAll, nil
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return Input(n), nil
	}
	return 0, fmt.Errorf("%q is neither all, none nor a rank", text)
}

// DefaultMaxLine is the length up to which lines of different ranks never mix, unless Job.MaxLine is set.
const DefaultMaxLine = output.DefaultMaxLine

// maxRanks is the maximum number of ranks of a job, and of slots of a host.
const maxRanks = 1 << 16

// A RequestError reports an invalid job request.
type RequestError struct{ What string }

func (e *RequestError) Error() string { return e.What }

func requestErrorf(text string, args ...any) error { return &RequestError{fmt.Sprintf(text, args...)} }

// A ProgramError reports a program that cannot be started, with the exit status that a shell would give: 127
// if it is not found, 126 if it cannot be executed, 1 for a Go package that does not build.
type ProgramError = build.Error

func (j *Job) check() error {
	if len(j.Apps) == 0 {
		return requestErrorf("no program to run")
	}
	n := 0
	for _, a := range j.Apps {
		if a.Program == "" {
			return requestErrorf("no program to run")
		}
		if a.Ranks == 0 && len(j.Hosts) > 0 && len(j.Apps) == 1 {
			return j.checkRest(maxRanks)
		}
		if a.Ranks < 1 {
			return requestErrorf("%d ranks of %s: at least 1 is needed", a.Ranks, a.Program)
		}
		if n += a.Ranks; n > maxRanks || a.Ranks > maxRanks {
			return requestErrorf("more than %d ranks", maxRanks)
		}
	}
	return j.checkRest(n)
}

// checkRest checks the job as a whole, which has n ranks.
func (j *Job) checkRest(n int) error {
	if err := j.checkInput(n); err != nil {
		return err
	}
	if err := j.checkRestarts(n); err != nil {
		return err
	}
	if err := j.checkNumbers(); err != nil {
		return err
	}
	if err := j.checkHosts(); err != nil {
		return err
	}
	if j.Trace != "" {
		if err := outfile.Check(j.Trace); err != nil {
			return requestErrorf("the trace cannot be written: %v", err)
		}
	}
	if j.Profile != "" {
		if err := outfile.Check(j.ProfileFile); err != nil {
			return requestErrorf("the profile cannot be written: %v", err)
		}
	}
	return nil
}

// checkNumbers checks the numbers and times that stand for themselves.
func (j *Job) checkNumbers() error {
	switch {
	case j.MaxLine < 0:
		return requestErrorf("a longest line of %d bytes is below zero", j.MaxLine)
	case j.FanOut < 0:
		return requestErrorf("%d agents to be started by each: at least 1 is needed", j.FanOut)
	case j.CoresPerRank < 0:
		return requestErrorf("%d cores for each rank: at least 1 is needed", j.CoresPerRank)
	case j.Endpoints < EndpointsAuto || j.Endpoints > MaxEndpoints:
		return requestErrorf("%d endpoints of each rank: 1 to %d are possible", j.Endpoints, MaxEndpoints)
	case j.Timeout < 0:
		return requestErrorf("a timeout of %s is below zero", j.Timeout)
	case j.Grace < 0:
		return requestErrorf("a time of %s between SIGTERM and SIGKILL is below zero", j.Grace)
	case j.Stuck < 0:
		return requestErrorf("a time of %s without progress is below zero", j.Stuck)
	}
	return nil
}

// checkHosts checks the hosts and how many ranks each takes.
func (j *Job) checkHosts() error {
	if j.MapBy.PerNode < 0 {
		return requestErrorf("%d ranks on each host: at least 1 is needed", j.MapBy.PerNode)
	}
	for _, h := range j.Hosts {
		if !isName(h.Name) {
			return requestErrorf("%q is no host's name", h.Name)
		}
		if h.Slots < 0 || h.Slots > maxRanks {
			return requestErrorf("%d slots of host %s: 1 to %d are possible", h.Slots, h.Name, maxRanks)
		}
	}
	return nil
}

// checkInput checks that the rank which gets standard input is one of n.
func (j *Job) checkInput(n int) error {
	if j.Stdin < InputAll || int(j.Stdin) >= n {
		return requestErrorf("standard input for rank %d: the ranks are 0 to %d", j.Stdin, n-1)
	}
	return nil
}

// name returns the name of the program in messages about its ranks; a folder "." or ".." has a useless name.
func (a *App) name() string {
	if base := filepath.Base(a.Program); base == "." || base == ".." {
		if folder, err := filepath.Abs(a.Program); err == nil {
			return filepath.Base(folder)
		}
	}
	return a.Program
}

// checkDir checks the folder that the ranks of a program start in, on this host.
func (a *App) checkDir() error {
	if a.Dir == "" {
		return nil
	}
	if info, err := os.Stat(a.Dir); err != nil {
		return requestErrorf("the folder to start %s in: %v", a.Program, err)
	} else if !info.IsDir() {
		return requestErrorf("the folder to start %s in: %s is not a folder", a.Program, a.Dir)
	}
	return nil
}
