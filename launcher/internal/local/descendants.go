package local

import (
	"bytes"
	"hash/fnv"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// changePause is the minimum time between two checks for children that have stopped, continued, or been
// adopted and ended. The kernel's signal says only that there are some.
const changePause = 20 * time.Millisecond

// watchChanges reports ranks that are stopped and continued, and reaps adopted processes, as the first
// process of a container must. changed receives SIGCHLD.
func (a *Agent) watchChanges(changed chan os.Signal) {
	defer signal.Stop(changed)
	for {
		select {
		case <-changed:
		case <-a.closing:
			return
		}
		known := map[int]bool{a.watchdog.pid: true}
		for _, p := range a.processes() {
			if pid := p.reportChange(); pid != 0 {
				known[pid] = true
			}
		}
		// While ranks are being started, an unknown child may be one of them.
		if a.sole && a.started.Load() {
			for _, pid := range sys.Children() {
				if !known[pid] {
					sys.ReapEnded(pid)
				}
			}
		}
		select {
		case <-time.After(changePause):
		case <-a.closing:
			return
		}
	}
}

// reportChange reports that a rank has been stopped or continued, and returns its process id while it is not
// reaped.
func (p *process) reportChange() int {
	p.mu.Lock()
	pid, change, sig := 0, sys.Unchanged, syscall.Signal(0)
	if p.state == alive {
		pid = p.pid
		change, sig = sys.ChildChange(pid)
	}
	p.mu.Unlock()
	switch change {
	case sys.Stopped:
		p.agent.emit(agent.Stopped{Rank: p.id, Signal: sig})
	case sys.Continued:
		p.agent.emit(agent.Continued{Rank: p.id})
	}
	return pid
}

// killDescendants kills the processes that the ranks have left behind.
func (a *Agent) killDescendants() {
	if !a.sole {
		killMarked(a.job)
		return
	}
	// A process that loses its parent becomes a child of this process, so none is left when there are no
	// children.
	for deadline := time.Now().Add(closeTimeout); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, pid := range sys.Children() {
			if pid != a.watchdog.pid && !sys.ReapEnded(pid) {
				left++
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if left == 0 || time.Now().After(deadline) {
			return
		}
	}
}

// markOf returns the mark that the processes of a job inherit as a resource limit. It is too large to be a
// real limit.
func markOf(job string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, job)
	return 1<<62 | h.Sum64()>>2
}

// killMarked kills every process that carries the job's mark, in its environment or among its limits. A
// process may fork while it is looked for, so it looks until none is left.
func killMarked(job string) {
	if job == "" {
		return
	}
	for range 100 {
		found := false
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if pid > 1 && pid != os.Getpid() && marked(dir, pid, job) {
				found = true
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if !found {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// marked reports whether a living process belongs to a job. The watchdog of a job within this one is not
// counted: it still has work to do.
func marked(dir string, pid int, job string) bool {
	env, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil || len(env) == 0 && !sys.StatOf(pid).Lives() {
		return false
	}
	for variable := range bytes.SplitSeq(env, []byte{0}) {
		if string(variable) == jobVariable+"="+job {
			return true
		}
	}
	name, _ := os.ReadFile(filepath.Join(dir, "comm"))
	return sys.Marked(pid, markOf(job)) && string(name) != watchdogName+"\n"
}
