package sys

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

func (c *Child) tie(attr *syscall.SysProcAttr) error {
	if c.DiesWithThread {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return nil
}

// Reaper tells which children have ended, in the order in which they did: the kernel queues their descriptors as they become
// readable. The children stay zombies, and with them their ids and groups reserved, until Reap.
type Reaper struct {
	mu    sync.Mutex
	epoll *os.File // itself watched by the runtime's poller, so that waiting takes no thread
	raw   int
	pids  map[int32]int // by the pidfd
}

// NewReaper returns a Reaper that watches no child yet.
func NewReaper() (*Reaper, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &Reaper{epoll: os.NewFile(uintptr(fd), "reaper"), raw: fd, pids: make(map[int32]int)}, nil
}

// Watch adds a child that is not reaped yet.
func (r *Reaper) Watch(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open %d: %w (Linux 5.3 or later is needed)", pid, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := unix.EpollCtl(r.raw, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("epoll_ctl pidfd of %d: %w", pid, err)
	}
	r.pids[int32(fd)] = pid
	return nil
}

// Next waits for children to end and appends their ids to pids, the first to end first. It fails with os.ErrClosed after Close.
func (r *Reaper) Next(pids []int) ([]int, error) {
	conn, err := r.epoll.SyscallConn()
	if err != nil {
		return pids, err
	}
	var failure error
	err = conn.Read(func(epoll uintptr) bool {
		var events [64]unix.EpollEvent
		n, err := unix.EpollWait(int(epoll), events[:], 0)
		if err == unix.EINTR {
			n, err = 0, nil
		}
		failure = err
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range events[:max(n, 0)] {
			pids = append(pids, r.pids[e.Fd])
			delete(r.pids, e.Fd)
			// Closing alone would leave it in the set while a child that is being started holds a copy.
			unix.EpollCtl(int(epoll), unix.EPOLL_CTL_DEL, int(e.Fd), nil)
			unix.Close(int(e.Fd))
		}
		return n != 0
	})
	if err == nil {
		err = failure
	}
	return pids, err
}

// Close ends a Next that waits, and watches no child any more.
func (r *Reaper) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for fd := range r.pids {
		unix.Close(int(fd))
	}
	r.pids = nil
	return r.epoll.Close()
}

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

// WaitReadable waits until one of two descriptors can be read or has ended, and tells whether the first can.
func WaitReadable(fd, other int) (first bool, err error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(other), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err != unix.EINTR {
			return fds[0].Revents != 0 && fds[1].Revents == 0, err
		}
	}
}

// IsTerminal tells whether a descriptor is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// InForeground tells whether this process may read the terminal without being stopped for it.
func InForeground(terminal int) bool {
	group, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
