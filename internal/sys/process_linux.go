package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (c *Child) tie(attr *syscall.SysProcAttr) error {
	if c.DiesWithThread {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return nil
}

// marking keeps two children from being started with each other's mark.
var marking sync.Mutex

// mark makes processes started from now on carry the child's mark: the soft limit of the time that a process
// with a real-time policy may run without a pause, in microseconds. Children inherit it, even if their
// environment, session and parents change, and no process ever runs for so long.
func (c *Child) mark() (undo func()) {
	if c.Mark == 0 {
		return func() {}
	}
	marking.Lock()
	var before unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &before)
	if err == nil && c.Mark <= before.Max { // else somebody has a use for the limit
		err = unix.Prlimit(0, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: c.Mark, Max: before.Max}, nil)
	}
	return func() {
		if err == nil {
			unix.Prlimit(0, unix.RLIMIT_RTTIME, &before, nil)
		}
		marking.Unlock()
	}
}

// Marked reports whether a process was started with a mark, or descends from one that was.
func Marked(pid int, mark uint64) bool {
	var now unix.Rlimit
	return unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &now) == nil && now.Cur == mark
}

// preference is by how much a child counts as larger than it is when memory runs out, in thousandths of all
// memory.
const preference = 100

// PreferAsVictim makes the system end a child rather than this process when memory runs out, as this process
// must report why the job ended. The system may end several before the memory of the first is free.
func PreferAsVictim(pid int) {
	if score := victimScore(); score != "" { // a system without it chooses by itself
		os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, scoreFile), []byte(score), 0)
	}
}

const scoreFile = "oom_score_adj"

// victimScore is the score of a child.
var victimScore = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/self/" + scoreFile)
	if err != nil {
		return ""
	}
	own, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return strconv.Itoa(min(own+preference, 1000))
})

// SignalName is the name of a signal, such as SIGKILL.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig))
}

// StreamPair is a pair of connected stream sockets that no started process inherits unless it is given one.
func StreamPair() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], err
}

// Pipe is a pipe whose ends no started process inherits unless it is given one. Both block.
func Pipe() (reader, writer int, err error) {
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
	return fds[0], fds[1], err
}

// Unread returns the number of unread bytes in a pipe.
func Unread(pipe int) int {
	n, _ := unix.IoctlGetInt(pipe, unix.TIOCINQ)
	return n
}

// WaitReadable waits until one of two descriptors can be read or has ended, and reports whether the first
// can.
func WaitReadable(fd, other int) (first bool, err error) { return wait(fd, unix.POLLIN, other) }

// WaitWritable waits until the first descriptor can be written or has failed, or the other can be read, and
// reports whether it was the first. A writable pipe or terminal takes PipeAtomic bytes without blocking.
func WaitWritable(fd, other int) (first bool, err error) { return wait(fd, unix.POLLOUT, other) }

func wait(fd int, events int16, other int) (first bool, err error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(other), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err != unix.EINTR {
			return fds[0].Revents != 0 && fds[1].Revents == 0, err
		}
	}
}

// MoveAbove moves a descriptor, which programs that this process starts do not get, to the first free number
// from min on. Where that cannot be, it stays where it is.
func MoveAbove(fd, min int) int {
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, min)
	if err != nil {
		return fd
	}
	unix.Close(fd)
	return moved
}

// PipeAtomic is the number of bytes that are written to a pipe atomically.
const PipeAtomic = 4096

// PipeCapacity returns the number of bytes that a pipe can hold.
func PipeCapacity(fd int) int {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return 64 << 10
	}
	return n
}

// IsTerminal reports whether a descriptor is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// TerminalWidth returns how many columns a terminal has, 0 if the descriptor is none.
func TerminalWidth(fd int) int {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// InForeground reports whether this process may read the terminal without being stopped for it.
func InForeground(terminal int) bool {
	group, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// JobControl is a change of a child that is not its end.
type JobControl uint8

const (
	Unchanged JobControl = iota
	Stopped              // by the signal
	Continued
)

// ChildChange returns the last change of a child that was not returned before, and the signal of Stopped. It
// does not wait and does not reap.
func ChildChange(pid int) (JobControl, syscall.Signal) {
	// The part of siginfo_t that waitid fills in, on 64-bit systems.
	var info struct {
		signo, errno, code, _ int32
		pid, uid, status, _   int32
		_                     [96]byte
	}
	err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)),
		unix.WSTOPPED|unix.WCONTINUED|unix.WNOHANG, nil)
	const stopped, continued = 5, 6 // CLD_STOPPED, CLD_CONTINUED
	switch {
	case err != nil || info.pid != int32(pid):
		return Unchanged, 0
	case info.code == stopped:
		return Stopped, syscall.Signal(info.status)
	case info.code == continued:
		return Continued, 0
	}
	return Unchanged, 0
}

// AwaitEnd waits until a child has ended, and does not reap it. It returns an error if somebody else has
// reaped it.
func AwaitEnd(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return err
		}
	}
}

// AdoptOrphans makes this process the parent of its descendants whose own parent has ended.
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Children are the living and the ended children of this process.
func Children() []int {
	var pids []int
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if os.IsNotExist(err) && task.Name() == strconv.Itoa(os.Getpid()) {
			for _, p := range ChildrenOf(os.Getpid()) { // the kernel is built without these files
				pids = append(pids, p.PID)
			}
			return pids
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// ReapEnded reaps a child if it has ended.
func ReapEnded(pid int) (ended bool) {
	got, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	return got == pid
}
