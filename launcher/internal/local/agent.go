package local

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

const (
	// closeTimeout is how long Close waits for processes that it has killed.
	closeTimeout = time.Second
	// blockedThreads is more than the threads of the launcher that wait in system calls, in signal delivery
	// or for the ranks' end at any one time. In addition, one thread for each processor executes goroutines.
	blockedThreads = 8
	// otherThreads are the threads of the runtime itself and of the watchdog.
	otherThreads = 8
	// maxProcessors bounds the reserved threads on large machines, where more are seldom awake.
	maxProcessors = 16
)

// Agent runs the ranks of one job as children of this process.
type Agent struct {
	job      string
	sole     bool
	mark     uint64   // a resource limit that the ranks inherit (see markOf); 0 without Sole
	stdin    *os.File // standard input of ranks with agent.StdinInherit
	null     *os.File
	watchdog *watchdog
	watcher  *sys.Watcher
	temp     string // the folder for builds and for staged programs; empty without one

	events  chan agent.Event
	closing chan struct{} // closed by Close: events are dropped
	release chan struct{} // closed when the starting thread may end
	halted  atomic.Bool   // start no further rank
	started atomic.Bool   // no further rank will be started
	flow    [agent.Streams]gate
	tasks   sync.WaitGroup // the goroutines of ranks that have been started
	watched chan struct{}  // closed when watch has returned

	mu     sync.Mutex
	ranks  map[int]*process
	failed []int // failed ranks of the whole job, for ranks that are started later

	sending sync.Mutex // an answer to Records; so what is sent later is also of a later time

	pmi pmiService
}

var _ agent.Agent = (*Agent)(nil)

// Options configure an Agent.
type Options struct {
	Job   string   // the job's id, which its processes have in WEFT_JOB
	Stdin *os.File // for agent.StdinInherit; nil if not used
	// Sole says that this process starts no other children. Then, while it starts ranks, it may carry the
	// job's mark itself, so that descendants inherit it and can be found and killed even if they have left
	// their session and cleared their environment.
	Sole bool
}

// New returns an agent that has started only its watchdog.
func New(o Options) (*Agent, error) {
	a := &Agent{
		job: o.Job, sole: o.Sole, stdin: o.Stdin, ranks: make(map[int]*process),
		events: make(chan agent.Event, 256), closing: make(chan struct{}), release: make(chan struct{}),
		watched: make(chan struct{}),
	}
	threads := min(runtime.GOMAXPROCS(0), maxProcessors) + blockedThreads
	limit, err := sys.ProcessLimit()
	if err == nil && limit < uint64(threads+otherThreads) {
		return nil, fmt.Errorf("the system allows this user %d processes and threads, and weft needs %d "+
			"beside those of the ranks (ulimit -u)", limit, threads+otherThreads)
	}
	if a.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if a.watcher, err = sys.NewWatcher(); err != nil {
		a.null.Close()
		return nil, err
	}
	if a.watchdog, err = startWatchdog(); err != nil {
		a.watcher.Close()
		a.null.Close()
		return nil, err
	}
	// Ranks may use up the user's limit of threads, and a launcher that cannot get a thread would crash. If
	// it crashes here, the watchdog says why, as it knows of no job yet.
	sys.ReserveThreads(threads)
	a.watchdog.guard(o.Job)
	if a.sole {
		a.mark = markOf(o.Job)
		if err := sys.AdoptOrphans(); err != nil {
			a.sole = false // marked processes are found nevertheless
		}
	}
	go a.watch()
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGCHLD) // before there is a rank
	go a.watchChanges(changed)
	return a, nil
}

func (a *Agent) Events() <-chan agent.Event { return a.events }

func (a *Agent) emit(e agent.Event) {
	select {
	case a.events <- e:
	case <-a.closing:
	}
}

func (a *Agent) Do(c agent.Command) {
	switch c := c.(type) {
	case agent.Start:
		a.pmi.begin(c)
		a.tasks.Add(1)
		go a.start(c)
	case agent.Halt:
		a.halted.Store(true)
	case agent.Signal:
		a.signal(c)
	case agent.Release, agent.Found, agent.TellWaits:
		a.commandPMI(c)
	case agent.HangUp:
		if p := a.rank(c.Rank); p != nil {
			p.hangUp()
		}
	case agent.Input:
		if p := a.rank(c.Rank); p != nil {
			p.feed(c.Data)
		}
	case agent.Ask:
		for _, id := range c.Ranks {
			if p := a.rank(id); p != nil {
				p.ask(c.Question)
			}
		}
	case agent.Records:
		go a.sendRecords(c.Ranks)
	case agent.Failed:
		a.mu.Lock()
		a.failed = append(a.failed, c.Rank)
		a.mu.Unlock()
		for _, p := range a.processes() {
			p.tellFailed(c.Rank)
		}
	case agent.Pause:
		a.flow[c.Stream].set(c.On)
	}
}

func (a *Agent) rank(id int) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ranks[id]
}

// processes returns the started ranks, in no order.
func (a *Agent) processes() []*process {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*process, 0, len(a.ranks))
	for _, p := range a.ranks {
		list = append(list, p)
	}
	return list
}

func (a *Agent) signal(c agent.Signal) {
	if c.Ranks == nil {
		for _, p := range a.processes() {
			p.signal(c.Signal)
		}
		return
	}
	for _, id := range c.Ranks {
		if p := a.rank(id); p != nil {
			p.signal(c.Signal)
		}
	}
}

// TempDir makes a new folder, which is removed with the job, even if this process is killed.
func (a *Agent) TempDir() (string, error) {
	if a.temp == "" {
		name := filepath.Join(os.TempDir(), fmt.Sprintf("weft-%s-%d", a.job, os.Getpid()))
		a.watchdog.remove(name)
		if err := os.Mkdir(name, 0o700); err != nil {
			return "", err
		}
		a.temp = name
	}
	return os.MkdirTemp(a.temp, "")
}

// RemoveSocket makes the watchdog remove a socket of this process if the process is killed, and its folder if
// that is empty then.
func (a *Agent) RemoveSocket(path string) { a.watchdog.removeSocket(path) }

// Close implements agent.Agent.
func (a *Agent) Close() {
	a.halted.Store(true)
	close(a.closing)
	for _, p := range a.processes() {
		p.signal(syscall.SIGKILL)
		p.hangUp()
	}
	// Ranks that are being started end, too, with the thread that starts them.
	close(a.release)
	waitFor(&a.tasks, closeTimeout)
	a.watcher.Close()
	<-a.watched
	for _, p := range a.processes() {
		p.mu.Lock()
		if p.pmi >= 0 {
			syscall.Close(p.pmi)
		}
		p.mu.Unlock()
	}
	a.closeRecorders()
	a.killDescendants()
	if a.temp != "" {
		os.RemoveAll(a.temp)
	}
	a.watchdog.stop()
	a.null.Close()
}

func waitFor(group *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// watch reports PMI traffic and exits, in the order in which they happen.
func (a *Agent) watch() {
	defer close(a.watched)
	var seen []sys.Watched
	for {
		var err error
		if seen, err = a.watcher.Next(seen[:0]); err != nil {
			return
		}
		for _, w := range seen {
			p := a.rank(w.ID)
			if w.Kind == sys.WatchedReader {
				p.readPMI()
			} else {
				p.exited()
			}
		}
	}
}
