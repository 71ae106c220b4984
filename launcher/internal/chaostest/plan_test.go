package chaostest

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// A Plan is one job and what goes wrong in it. It follows from its seed.
type Plan struct {
	Seed   uint64
	Ranks  int
	Fabric Fabric
	Fault  Fault
	Victim int           // the rank that the fault strikes, where it strikes one
	Moment Moment        // when, where the victim brings it about by itself
	Step   int           // of AtStep
	After  time.Duration // of AtRandom, since the victim's start; of what the harness does, since the job's
	Status int           // of Exit
	Signal syscall.Signal
	Limit  int  // of FewDescriptors and FewProcesses
	Label  bool // lines carry labels
}

// Fabric is what carries the job's messages.
type Fabric string

// The fabrics, with the ways of using TCP.
const (
	Shm       Fabric = "shm"
	TCP       Fabric = "tcp"
	Lanes     Fabric = "lanes"
	TLS       Fabric = "tls"
	TLSLanes  Fabric = "tls lanes"
	Reconnect Fabric = "reconnect"
)

var fabrics = []Fabric{Shm, TCP, Lanes, TLS, TLSLanes, Reconnect}

// options are what weft run is given for the fabric.
func (f Fabric) options() []string {
	switch f {
	case Shm:
		return []string{"--fabric", "shm"}
	case Lanes:
		return []string{"--fabric", "tcp", "--lanes", "3"}
	case TLS:
		return []string{"--fabric", "tcp", "--tls"}
	case TLSLanes:
		return []string{"--fabric", "tcp", "--tls", "--lanes", "2"}
	case Reconnect:
		return []string{"--fabric", "tcp", "--reconnect"}
	}
	return []string{"--fabric", "tcp"}
}

// Fault is what goes wrong.
type Fault string

// The faults that a rank brings about by itself.
const (
	None   Fault = "none"
	Exit   Fault = "exit"   // the victim calls os.Exit
	Kill   Fault = "kill"   // a signal ends the victim
	Fail   Fault = "fail"   // the victim's body returns an error
	Panic  Fault = "panic"  // the victim's body panics
	Goexit Fault = "goexit" // the victim's body ends its goroutine
	Stop   Fault = "stop"   // a signal stops the victim
	Memory Fault = "memory" // the victim gets no more memory
	// the victim leaves processes behind: in its group, in a session, without environment, flooding
	Family Fault = "family"
	Silent Fault = "silent" // the victim closes its PMI connection and goes on
)

// The faults that the harness brings about.
const (
	Signal         Fault = "signal"
	SignalTwice    Fault = "signal twice" // to ranks that ignore it
	KillLauncher   Fault = "kill launcher"
	KillRank       Fault = "kill rank"
	KillWatchdog   Fault = "kill watchdog"
	FullDisk       Fault = "full disk"
	SmallDisk      Fault = "small disk"  // the file that takes the output is on one that becomes full
	SmallGroup     Fault = "small group" // the victim takes all the memory of the job's control group
	ClosedReader   Fault = "closed reader"
	StalledReader  Fault = "stalled reader"            // and a timeout
	StalledSignal  Fault = "stalled reader and signal" // which ends the job all the same
	Timeout        Fault = "timeout"
	FewDescriptors Fault = "few descriptors"
	FewProcesses   Fault = "few processes"
)

var faults = []Fault{
	None, Exit, Exit, Exit, Kill, Kill, Fail, Panic, Goexit, Stop, Memory, Family, Silent,
	Signal, SignalTwice, KillLauncher, KillRank, KillRank, KillWatchdog, FullDisk, ClosedReader,
	StalledReader, StalledSignal,
	Timeout, FewDescriptors, FewProcesses, SmallDisk, SmallGroup,
}

// Moment is when in its life the victim strikes.
type Moment string

// The moments of a rank's life.
const (
	BeforeInit    Moment = "before Init"
	AtRandom      Moment = "at a random moment" // Init among them
	AtStep        Moment = "at a step"
	InFinalize    Moment = "while the others are in Finalize"
	AfterFinalize Moment = "after Finalize"
)

// steps are what a job without end of its own takes; the others take no more.
const steps = 12

// New makes the plan of a seed.
func New(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x63686173))
	pick := func(n int) int { return r.IntN(n) }
	p := Plan{
		Seed: seed, Ranks: 2 + pick(4), Fabric: fabrics[pick(len(fabrics))],
		Fault: faults[pick(len(faults))], Step: pick(steps),
		After: time.Duration(pick(400)) * time.Millisecond, Status: 1 + pick(125), Label: pick(2) == 0,
	}
	p.Victim = pick(p.Ranks)
	moments := []Moment{AtStep}
	switch p.Fault {
	case Exit, Kill:
		moments = []Moment{BeforeInit, AtRandom, AtStep, InFinalize, AfterFinalize}
		if pick(4) == 0 {
			p.Status = 0
		}
		p.Signal = []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGHUP}[pick(3)]
	case Family:
		moments = []Moment{BeforeInit, AtStep, AfterFinalize}
	case Signal, SignalTwice, StalledSignal:
		p.Signal = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}[pick(2)]
	case SmallDisk:
		p.Limit = 4 << pick(8)
	case FewDescriptors:
		p.Limit = 4 + pick(40)
	case FewProcesses:
		p.Limit = 1 + pick(80)
	}
	p.Moment = moments[pick(len(moments))]
	if p.Moment == AtRandom && p.Status == 0 && p.Fault == Exit {
		p.Status = 3 // whether the rank had called Init would not be known
	}
	return p
}

// endless reports whether the ranks work until the fault ends them.
func (p Plan) endless() bool {
	switch p.Fault {
	case Signal, SignalTwice, KillLauncher, KillRank, ClosedReader, StalledReader, StalledSignal, Timeout,
		SmallDisk:
		return true
	}
	return p.Moment == AtRandom
}

// stubborn reports whether the ranks ignore the signals that ask them to end.
func (p Plan) stubborn() bool { return p.Fault == SignalTwice }

// flooding reports whether the ranks write more than a pipe holds.
func (p Plan) flooding() bool {
	return p.Fault == StalledReader || p.Fault == StalledSignal || p.Fault == SmallDisk
}

func (p Plan) String() string {
	text := fmt.Sprintf("seed %d: %d ranks over %s, %s", p.Seed, p.Ranks, p.Fabric, p.Fault)
	switch p.Fault {
	case Exit:
		text += fmt.Sprintf(" of rank %d with status %d %s", p.Victim, p.Status, p.Moment)
	case Kill:
		text += fmt.Sprintf(" of rank %d by %s %s", p.Victim, p.Signal, p.Moment)
	case Fail, Panic, Goexit, Stop, Memory, Silent, Family, SmallGroup:
		text += fmt.Sprintf(" of rank %d %s", p.Victim, p.Moment)
	case Signal, SignalTwice, StalledSignal:
		text += fmt.Sprintf(", %s after %s", p.Signal, p.After)
	case KillRank:
		text += fmt.Sprintf(" %d after %s", p.Victim, p.After)
	case SmallDisk:
		text += fmt.Sprintf(" of %d KiB", p.Limit)
	case FewDescriptors, FewProcesses:
		text += fmt.Sprintf(": %d", p.Limit)
	}
	switch {
	case p.Moment == AtStep && p.Fault != None && !p.endless():
		text += fmt.Sprintf(" (%d)", p.Step)
	case p.Moment == AtRandom:
		text += fmt.Sprintf(" (%s)", p.After)
	}
	return text
}
