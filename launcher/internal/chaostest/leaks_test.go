package chaostest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// endsWithin is how long what was killed may take to be gone.
const endsWithin = time.Minute

// leftOver lists what is left of a job that has ended, after a time at most: processes and temporary files. The
// watchdog of a launcher that was killed needs a moment.
func (j *job) leftOver(temp string, within time.Duration) (left []string) {
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		left = left[:0]
		for _, pid := range j.processes() {
			left = append(left, describe(pid)+" is left")
		}
		files, _ := filepath.Glob(filepath.Join(temp, "*"))
		for _, file := range files {
			left = append(left, file+" is left")
		}
		// Only sockets of living processes have names, and weft names no file in /dev/shm: its memory has
		// none.
		shared, _ := filepath.Glob("/dev/shm/*weft*")
		for _, file := range shared {
			left = append(left, file+" is left")
		}
		left = append(left, j.leftSockets()...)
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// processes are those of the job that live: by their environment, and by what ranks have noted.
func (j *job) processes() (pids []int) {
	mark := []byte(notesVariable + "=" + j.notes + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if env, err := os.ReadFile(file); err == nil && bytes.Contains(append(env, 0), mark) &&
			pid != os.Getpid() && sys.StatOf(pid).Lives() {
			pids = append(pids, pid)
		}
	}
	for _, pid := range j.readNotes()["child"] {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); sys.StatOf(pid).Lives() &&
			(string(name) == "sleep\n" || string(name) == "yes\n") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (j *job) killLeftOver() {
	for _, pid := range j.processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func describe(pid int) string {
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	p := sys.StatOf(pid)
	return fmt.Sprintf("process %d (%s, state %s, parent %d)", pid,
		strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " ")), p.State, p.Parent)
}

// explainHang has the processes of a job that does not end write where they are.
func (j *job) explainHang() {
	for _, pid := range append(j.processes(), j.cmd.Process.Pid) {
		where, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid))
		j.errs.add(fmt.Appendf(nil, "chaos: %s at %s\n", describe(pid), where))
		syscall.Kill(pid, syscall.SIGCONT)
		syscall.Kill(pid, syscall.SIGABRT)
	}
	time.Sleep(2 * time.Second)
}
