package sys

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Watcher reports which children have ended and which descriptors can be read, in the order of these
// events: the kernel queues descriptors, including those of processes, as they become readable. Children that
// have ended stay zombies, which reserves their ids and groups, until Reap.
type Watcher struct {
	epoll *os.File // itself watched by the runtime's poller, so that waiting takes no thread
	raw   int

	mu      sync.Mutex
	watched map[int32]Watched // by descriptor
}

// Watched is a thing that a Watcher watches, by the caller's own number.
type Watched struct {
	ID   int
	Kind WatchedKind
}

// WatchedKind is the kind of a watched object.
type WatchedKind uint8

const (
	WatchedProcess WatchedKind = iota // it is reported once, when it has ended
	// it is reported when there is something new to read; then read until nothing is left
	WatchedReader
)

// NewWatcher returns a Watcher that watches nothing yet.
func NewWatcher() (*Watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &Watcher{epoll: os.NewFile(uintptr(fd), "watcher"), raw: fd, watched: make(map[int32]Watched)}, nil
}

// WatchProcess adds a child that is not reaped yet.
func (w *Watcher) WatchProcess(pid, id int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open %d: %w (Linux 5.3 or later is needed)", pid, err)
	}
	if err := w.add(fd, Watched{id, WatchedProcess}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("epoll_ctl pidfd of %d: %w", pid, err)
	}
	return nil
}

// WatchReader adds a descriptor, which remains the caller's.
func (w *Watcher) WatchReader(fd, id int) error { return w.add(fd, Watched{id, WatchedReader}) }

func (w *Watcher) add(fd int, what Watched) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched == nil {
		return os.ErrClosed
	}
	w.watched[int32(fd)] = what
	// Edge-triggered: otherwise the kernel keeps a descriptor that was reported in its queue, and the next
	// event of it would come too early in the order.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
	err := unix.EpollCtl(w.raw, unix.EPOLL_CTL_ADD, fd, &event)
	if err != nil {
		delete(w.watched, int32(fd))
	}
	return err
}

// Forget ends the watching of a descriptor; it comes before the descriptor is closed.
func (w *Watcher) Forget(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(int32(fd))
}

func (w *Watcher) forget(fd int32) {
	if _, ok := w.watched[fd]; ok {
		delete(w.watched, fd)
		// Closing alone would leave it in the set while a child that is being started holds a copy.
		unix.EpollCtl(w.raw, unix.EPOLL_CTL_DEL, int(fd), nil)
	}
}

// Next waits until something has happened and appends it to seen, the first first. It fails with os.ErrClosed
// after Close.
func (w *Watcher) Next(seen []Watched) ([]Watched, error) {
	conn, err := w.epoll.SyscallConn()
	if err != nil {
		return seen, err
	}
	var failure error
	err = conn.Read(func(epoll uintptr) bool {
		var events [64]unix.EpollEvent
		n, err := unix.EpollWait(int(epoll), events[:], 0)
		if err == unix.EINTR {
			n, err = 0, nil
		}
		failure = err
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range events[:max(n, 0)] {
			what, ok := w.watched[e.Fd]
			if !ok {
				continue // forgotten, or the Watcher is being closed
			}
			seen = append(seen, what)
			if what.Kind == WatchedProcess {
				w.forget(e.Fd)
				unix.Close(int(e.Fd))
			}
		}
		return n != 0
	})
	if err == nil {
		err = failure
	}
	return seen, err
}

// Close ends a Next that waits, and the watching.
func (w *Watcher) Close() error {
	// This waits until Next has returned, which needs the lock on its way.
	err := w.epoll.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for fd, what := range w.watched {
		if what.Kind == WatchedProcess {
			syscall.Close(int(fd))
		}
	}
	w.watched = nil
	return err
}
