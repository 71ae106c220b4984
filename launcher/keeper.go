package launcher

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// keeperName is the keeper's argv[0], which no other way of starting this program gives it. Nor does it hold the launcher's own
// name, so that whoever kills the launcher by name spares the keeper.
const keeperName = "rank-keeper"

// jobVariable marks the environment of a job's processes, so that the keeper finds those that have left their rank's group.
const jobVariable = "WEFT_JOB"

// A keeper is a process that outlives the launcher: the same program, started again, that reads from a pipe which only the launcher
// writes to. When the launcher is gone without having killed its keeper, the keeper ends the job's processes.
type keeper struct {
	mu   sync.Mutex
	pipe *os.File
	pid  int
}

// startKeeper must be called before the first rank is started.
func startKeeper(job string) (*keeper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's own file: %w", err)
	}
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		self = "/proc/self/exe" // still there when the file has been replaced
	}
	reader, writer, err := sys.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to the keeper: %w", err)
	}
	defer syscall.Close(reader)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// A session of its own keeps the terminal's signals from it.
	child := sys.Child{
		Path: self, Args: []string{keeperName}, Env: []string{"GOMAXPROCS=1"}, OwnSession: true,
		Files: []uintptr{uintptr(reader), null.Fd(), null.Fd()},
	}
	pid, err := child.Start()
	if err != nil {
		syscall.Close(writer)
		return nil, fmt.Errorf("the keeper: %w", err)
	}
	k := &keeper{pipe: os.NewFile(uintptr(writer), "keeper"), pid: pid}
	k.tell("job", job)
	return k, nil
}

// tell hands the keeper a fact. A keeper that is gone, killed by someone, is no reason to end the job.
func (k *keeper) tell(what, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fmt.Fprintf(k.pipe, "%s %s\n", what, value)
}

// watch and forget bracket the life of a rank: its process, which leads its group, is not reaped in between.
func (k *keeper) watch(group int)  { k.tell("group", strconv.Itoa(group)) }
func (k *keeper) forget(group int) { k.tell("forget", strconv.Itoa(group)) }

// remove has a temporary folder removed if the launcher does not live to do it.
func (k *keeper) remove(dir string) { k.tell("remove", dir) }

// dismiss ends the keeper, which has nothing left to keep.
func (k *keeper) dismiss() {
	syscall.Kill(k.pid, syscall.SIGKILL)
	sys.Reap(k.pid)
	k.pipe.Close()
}

func init() {
	if len(os.Args) == 1 && os.Args[0] == keeperName {
		keep()
		os.Exit(0)
	}
}

// keep is the keeper's life.
func keep() {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	os.WriteFile("/proc/self/comm", []byte(keeperName), 0)
	groups := make(map[int]bool)
	job, dirs := "", []string(nil)
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
		}
	}
	for group := range groups {
		sys.SignalGroup(group, syscall.SIGKILL)
	}
	killMarked(job)
	for _, dir := range dirs {
		os.RemoveAll(dir)
	}
}

// killMarked kills every process whose environment carries the job's mark: ranks that were started and not yet announced, and
// processes that have left their rank's group. A process may fork while it is looked for, so it looks until none is left.
func killMarked(job string) {
	if job == "" {
		return
	}
	mark := []byte(jobVariable + "=" + job)
	for range 100 {
		found := false
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			env, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			for variable := range bytes.SplitSeq(env, []byte{0}) {
				if bytes.Equal(variable, mark) {
					pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
					if pid > 1 && pid != os.Getpid() {
						found = true
						syscall.Kill(pid, syscall.SIGKILL)
					}
					break
				}
			}
		}
		if !found {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
