package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// watchdogName is the watchdog's argv[0], which no other start of this program has. It does not contain the
// launcher's name, so killing the launcher by name does not kill the watchdog.
const watchdogName = "rank-watchdog"

// A watchdog is a process that outlives this one: the same program, started again, that reads from a pipe
// which only this process writes to. When this process is gone without having stopped its watchdog, the
// watchdog ends the job's processes.
type watchdog struct {
	mu   sync.Mutex
	pipe *os.File
	pid  int
}

// mainCallsWatchdog is set if this program's main function calls WatchdogMain.
var mainCallsWatchdog atomic.Bool

// WatchdogMain runs the watchdog if this process is one, and then does not return. A program's main function
// must call it first, because the watchdog is the program itself, started again.
func WatchdogMain() {
	mainCallsWatchdog.Store(true)
	if len(os.Args) == 1 && os.Args[0] == watchdogName {
		watchOver()
		os.Exit(0)
	}
}

// watchdogSlack is the watchdog's timer slack. It has no timers; but Go's system monitor would wake up every
// 20 µs during its start, which costs a tenth of the start.
const watchdogSlack = 50 * time.Millisecond

// tooFewThreads is the watchdog's message if the launcher ended before there was a job.
const tooFewThreads = "weft: the launcher ended while it started its threads: the system must allow this " +
	"user more processes (ulimit -u, or pids.max of the control group)"

// startWatchdog must be called before the first rank is started.
func startWatchdog() (*watchdog, error) {
	if !mainCallsWatchdog.Load() {
		return nil, errors.New("this program's main function does not begin with launcher.Watchdog()")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's own file: %w", err)
	}
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		self = "/proc/self/exe" // valid even if the file has been replaced
	}
	reader, writer, err := sys.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the watchdog: %w", err)
	}
	defer syscall.Close(reader)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		syscall.Close(writer)
		return nil, err
	}
	defer null.Close()
	// In its own session it gets no signals of the terminal.
	child := sys.Child{
		Path: self, Args: []string{watchdogName}, Env: []string{"GOMAXPROCS=1"}, OwnSession: true,
		// Not as standard error, to which its own runtime writes.
		Files: []uintptr{uintptr(reader), uintptr(syscall.Stderr), null.Fd()},
	}
	runtime.LockOSThread()
	sys.SetTimerSlack(watchdogSlack) // the child inherits it
	pid, err := child.Start()
	sys.SetTimerSlack(0)
	runtime.UnlockOSThread()
	if err != nil {
		syscall.Close(writer)
		return nil, fmt.Errorf("the watchdog: %w", err)
	}
	return &watchdog{pipe: os.NewFile(uintptr(writer), "watchdog"), pid: pid}, nil
}

// tell sends the watchdog a fact. If the watchdog is gone, killed by someone, the job continues.
func (w *watchdog) tell(what, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.pipe, "%s %s\n", what, value)
}

// guard makes the watchdog end a job if this process dies before it does so.
func (w *watchdog) guard(job string) { w.tell("job", job) }

// watch and forget bracket the life of a rank: its process, which leads its group, is not reaped in between.
func (w *watchdog) watch(group int)  { w.tell("group", strconv.Itoa(group)) }
func (w *watchdog) forget(group int) { w.tell("forget", strconv.Itoa(group)) }

// remove makes the watchdog remove a temporary folder if this process dies.
func (w *watchdog) remove(dir string) { w.tell("remove", dir) }

// removeSocket makes it remove a socket then, and its folder if that is empty.
func (w *watchdog) removeSocket(path string) { w.tell("socket", path) }

// stop ends the watchdog when it has nothing left to watch.
func (w *watchdog) stop() {
	syscall.Kill(w.pid, syscall.SIGKILL)
	sys.Reap(w.pid)
	w.pipe.Close()
}

// watchOver is the watchdog's main loop.
func watchOver() {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	os.WriteFile("/proc/self/comm", []byte(watchdogName), 0)
	groups := make(map[int]bool)
	job, dirs, sockets := "", []string(nil), []string(nil)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		what, value, _ := strings.Cut(in.Text(), " ")
		group, _ := strconv.Atoi(value)
		switch what {
		case "job":
			job = value
		case "group":
			groups[group] = true
		case "forget":
			delete(groups, group)
		case "remove":
			dirs = append(dirs, value)
		case "socket":
			sockets = append(sockets, value)
		}
	}
	if job == "" {
		fmt.Println(tooFewThreads)
	}
	for group := range groups {
		sys.SignalGroup(group, syscall.SIGKILL)
	}
	killMarked(job)
	for _, dir := range dirs {
		os.RemoveAll(dir)
	}
	for _, path := range sockets {
		os.Remove(path)
		os.Remove(filepath.Dir(path))
	}
}
