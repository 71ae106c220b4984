package local

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/weft-mpi/weft/internal/firstmessage"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// jobVariable marks the environment of a job's processes, to find those that have left their rank's group.
const jobVariable = "WEFT_JOB"

// start starts the ranks on a separate thread, which lives as long as they do: the kernel kills them when it
// ends.
func (a *Agent) start(c agent.Start) {
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	a.startAll(c)
	a.started.Store(true)
	a.tasks.Done()
	a.emit(agent.AllStarted{})
	<-a.release
}

func (a *Agent) startAll(c agent.Start) {
	spawner := spawner{agent: a, secret: c.Secret, ranks: len(c.Ranks), environ: a.environ(),
		firstMessages: firstMessages(c.Ranks)}
	if spawner.firstMessages >= 0 {
		defer syscall.Close(spawner.firstMessages)
	}
	var err error
	if spawner.cpus, err = sys.Affinity(); err != nil {
		spawner.cpus = nil // then binding fails, too, and reports it
	}
	if c.TimerSlack > 0 {
		if err := sys.SetTimerSlack(c.TimerSlack); err != nil && len(c.Ranks) > 0 {
			a.emit(agent.NotStarted{Rank: c.Ranks[0].ID, Reason: fmt.Sprintf("timer slack: %v", err)})
			return
		}
	}
	for i := range c.Ranks {
		if a.halted.Load() {
			return
		}
		if failure := spawner.start(&c.Ranks[i]); failure != nil {
			a.emit(*failure)
			return
		}
	}
}

// environ returns the variables from this process's environment and from the agent for each rank.
func (a *Agent) environ() []string {
	return append(Inherited(),
		jobVariable+"="+a.job, "PMI_FD="+strconv.Itoa(firstInherited))
}

// A spawner starts the ranks of one job.
type spawner struct {
	agent   *Agent
	secret  []byte
	ranks   int
	environ []string
	cpus    []int // usable by this process

	firstMessages int // the descriptor of their memory; -1 for none
}

// firstMessages makes the memory for first messages of many ranks, and returns its descriptor; -1 for none.
// Without it, ranks connect first.
func firstMessages(ranks []agent.Rank) int {
	numbers := make([]int, len(ranks))
	for i := range ranks {
		numbers[i] = ranks[i].ID
	}
	fd, _ := firstmessage.New(numbers)
	return fd
}

// start starts one rank. It returns nil if a halt has come meanwhile.
func (s *spawner) start(r *agent.Rank) *agent.NotStarted {
	refuse := func(err error) *agent.NotStarted { return &agent.NotStarted{Rank: r.ID, Reason: err.Error()} }
	p := &process{agent: s.agent, id: r.ID, handedOver: make(chan struct{}, 8), silent: make(chan struct{})}
	files, err := s.connect(p, r)
	if err != nil {
		return refuse(err)
	}
	defer files.closeAll()
	if r.CPUs != nil {
		if err := sys.SetAffinity(r.CPUs); err != nil {
			p.abandon()
			return refuse(fmt.Errorf("binding rank %d: %w", r.ID, err))
		}
		defer sys.SetAffinity(s.cpus)
	}
	child := sys.Child{
		Path: r.Path, Args: append([]string{r.Name}, r.Args...), Dir: r.Dir, Files: files.theirs,
		Env: unique(slices.Concat(s.environ, files.env(), r.Env)), OwnSession: true, DiesWithThread: true,
		Mark: s.agent.mark,
	}
	// From here on, signals for the rank are kept until it can get them. After a halt it gets none.
	s.agent.add(p)
	if s.agent.halted.Load() {
		s.agent.drop(p)
		return nil
	}
	s.agent.tasks.Add(1)
	pid, err := child.Start()
	if err != nil {
		s.agent.drop(p)
		s.agent.tasks.Done()
		return startError(r, s.explain(err))
	}
	s.agent.watchdog.watch(pid)
	sys.PreferAsVictim(pid)
	p.begun(pid)
	return s.watch(p, r)
}

// watch starts the goroutines for the connections between the rank and the agent.
func (s *spawner) watch(p *process, r *agent.Rank) *agent.NotStarted {
	a := s.agent
	a.tasks.Add(1)
	go func() {
		defer a.tasks.Done()
		var all sync.WaitGroup
		for _, s := range p.streams {
			all.Go(s.copy)
		}
		all.Wait()
		// A rank that has closed its output may live on; report the end of its output after its own.
		if len(p.streams) > 0 {
			<-p.streams[0].over
		}
		a.emit(agent.OutputEnd{Rank: p.id})
	}()
	if p.feeder != nil {
		go p.feeder.run(p)
	}
	go p.readSnapshots()
	err := a.watcher.WatchProcess(p.pid, r.ID)
	if err != nil {
		// Otherwise nobody would notice its end.
		p.signal(syscall.SIGKILL)
		p.hangUp()
		p.exited()
	} else if err = p.watchPMI(); err != nil {
		p.signal(syscall.SIGKILL)
		p.hangUp()
	}
	if err == nil {
		return nil
	}
	return &agent.NotStarted{Rank: r.ID, Reason: fmt.Sprintf("watching rank %d: %v", r.ID, err)}
}

// add adds a rank to those that are told of failures, and tells it the earlier ones.
func (a *Agent) add(p *process) {
	a.mu.Lock()
	a.ranks[p.id] = p
	failed := a.failed
	a.mu.Unlock()
	for _, rank := range failed {
		p.tellFailed(rank)
	}
}

// drop removes a rank whose program was not executed.
func (a *Agent) drop(p *process) {
	a.mu.Lock()
	delete(a.ranks, p.id)
	a.mu.Unlock()
	p.abandon()
}

// abandon closes this side's ends of connect's files.
func (p *process) abandon() {
	p.mu.Lock()
	p.state = ended
	syscall.Close(p.pmi)
	p.pmi = -1
	p.mu.Unlock()
	for _, s := range p.streams {
		s.pipe.Close()
	}
	if p.snapshots != nil {
		p.snapshots.Close()
	}
	if p.feeder != nil {
		p.feeder.close()
	}
	if p.recorder != nil {
		p.recorder.Close()
	}
}

// startError explains why the kernel did not execute a program that seemed executable.
func startError(r *agent.Rank, err error) *agent.NotStarted {
	n := &agent.NotStarted{Rank: r.ID, Status: 126}
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		n.Reason = r.Name + ": not a program for this machine, nor a script that begins with #!"
	case errors.Is(err, syscall.ENOENT):
		n.Status = 127
		n.Reason = r.Name + ": its interpreter (the file after #!, or the dynamic loader) does not exist"
	case errors.Is(err, syscall.EACCES):
		n.Reason = r.Name + ": " + err.Error()
	case errors.Is(err, syscall.E2BIG):
		n.Reason = r.Name + ": arguments and environment are too long"
	case errors.Is(err, syscall.EAGAIN):
		n.Status = 0
		n.Reason = fmt.Sprintf("rank %d cannot be started: %v: the limit of processes is reached (ulimit "+
			"-u)", r.ID, err)
	default:
		n.Status = 0
		n.Reason = fmt.Sprintf("rank %d cannot be started: %v", r.ID, err)
	}
	return n
}

// foreign are the prefixes of variables by which another launcher identifies its ranks, and of weft's own for
// the cores of completion handlers. This process has them if it runs inside such a job.
var foreign = []string{"PMI_", "PMIX_", "OMPI_COMM_WORLD_", "HYDI_", "MPI_LOCAL", "WEFT_CQ_CORES="}

// outer are variables that weft run sets for a job's ranks, most of them only if the user has not. In a job
// within a job the inherited values belong to the outer one.
var outer = []string{"WEFT_CORES_PER_RANK=", "WEFT_ENDPOINTS=", "WEFT_IFACE=", "WEFT_SURVIVE=",
	"WEFT_RESTARTED=", "GOMAXPROCS="}

// Inherited returns this process's environment without the variables of another launcher.
func Inherited() []string {
	drop := foreign
	if os.Getenv(jobVariable) != "" {
		drop = slices.Concat(foreign, outer)
	}
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(drop, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
}

// unique keeps the last setting of each variable, since programs differ in which of two they use.
func unique(env []string) []string {
	last := make(map[string]int, len(env))
	for i, v := range env {
		name, _, _ := strings.Cut(v, "=")
		last[name] = i
	}
	out := env[:0:0]
	for i, v := range env {
		if name, _, _ := strings.Cut(v, "="); last[name] == i {
			out = append(out, v)
		}
	}
	return out
}
