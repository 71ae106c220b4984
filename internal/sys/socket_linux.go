package sys

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The four below are for sockets, and raw: they do not tell the scheduler, so that a call that has nothing to
// do costs a few hundred nanoseconds. Those without pieces are the calls that only sockets have, which the
// kernel comes through sooner. They must only be used on non-blocking descriptors. "Again" is reported as n
// == -1 with no error; the end of a stream as n == 0.

// Read reads available bytes into p, which is not empty.
func Read(fd int, p []byte) (int, error) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])),
			uintptr(len(p)), syscall.MSG_DONTWAIT, 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != syscall.EINTR {
			return again(e)
		}
	}
}

// Write writes as much of p, which is not empty, as there is room for.
func Write(fd int, p []byte) (int, error) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])),
			uintptr(len(p)), syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != syscall.EINTR {
			return again(e)
		}
	}
}

// Iovec is a piece of memory for Readv and Writev. It does not keep the memory alive: its owner does.
type Iovec = syscall.Iovec

// Vec describes p, which is not empty.
func Vec(p []byte) Iovec {
	v := Iovec{Base: &p[0]}
	v.SetLen(len(p))
	return v
}

// Readv reads available bytes into the pieces, in order.
func Readv(fd int, v []Iovec) (int, error) {
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])),
			uintptr(len(v)))
		if e == 0 {
			return int(n), nil
		}
		if e != syscall.EINTR {
			return again(e)
		}
	}
}

// Writev writes as much of the pieces, in order, as there is room for.
func Writev(fd int, v []Iovec) (int, error) {
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])),
			uintptr(len(v)))
		if e == 0 {
			return int(n), nil
		}
		if e != syscall.EINTR {
			return again(e)
		}
	}
}

func again(e syscall.Errno) (int, error) {
	if e == syscall.EAGAIN {
		return -1, nil
	}
	return 0, e
}

// CloseFD closes a descriptor.
func CloseFD(fd int) error { return unix.Close(fd) }

// PrepareSocket makes a connected stream socket ready for raw use: non-blocking, and, if it is TCP's, without
// Nagle's delay.
func PrepareSocket(fd int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil ||
		domain == unix.AF_UNIX {
		return err
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// SkipCongestionControl selects the cheapest congestion control for a connection within this machine, which
// has no network to be congested: pacing would only cost time. It changes nothing if the system does not
// allow it.
func SkipCongestionControl(fd int) {
	unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
}

// LimitUnsent limits how many bytes a socket accepts that TCP cannot send yet. If the system does not support
// this, the size of the socket's buffer is the limit.
func LimitUnsent(fd, bytes int) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
}

// Poller waits for descriptors, and can be woken.
type Poller struct {
	epoll int
	event int // eventfd
	// Wake has been called, and nothing drained since: a further call does nothing
	woken atomic.Bool
	ended [8]byte // what was read from it; here, so that it is not allocated
	wake  int     // the wake socket; 0 without one

	parking *os.File // the epoll, watched by the runtime's poller; nil before the first Park
	raw     syscall.RawConn
	look    func(epoll uintptr) (done bool) // for raw: made once, so that Park allocates nothing
	failed  error                           // of the last look
}

// Numbers under which the poller's own descriptors are watched. Those of others are not negative.
const (
	eventID = -1
	wakeID  = -2
)

// NewPoller makes a poller. Close it.
func NewPoller() (*Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, err
	}
	p := &Poller{epoll: epoll, event: event}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, event,
		&unix.EpollEvent{Events: unix.EPOLLIN, Fd: eventID}); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func interest(write bool) uint32 {
	if write {
		return unix.EPOLLIN | unix.EPOLLOUT
	}
	return unix.EPOLLIN
}

// Add watches a descriptor for input, and for room to write if asked; id comes back in Ready.
func (p *Poller) Add(fd int, id int32, write bool) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: interest(write), Fd: id})
}

// Change changes what a descriptor is watched for.
func (p *Poller) Change(fd int, id int32, write bool) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: interest(write), Fd: id})
}

// Remove ends the watch.
func (p *Poller) Remove(fd int) error { return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// Ready reports, without blocking, the ids of descriptors that have something.
func (p *Poller) Ready(ids []int32) int {
	var events [64]unix.EpollEvent
	maxEvents := min(len(events), len(ids))
	r, _, e := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.epoll),
		uintptr(unsafe.Pointer(&events[0])), uintptr(maxEvents), 0, 0, 0)
	if e != 0 {
		return 0
	}
	n := 0
	for _, ev := range events[:r] {
		if ev.Fd >= 0 {
			ids[n] = ev.Fd
			n++
		}
	}
	return n
}

// Wait blocks until a descriptor is ready, Wake is called, or d has passed (d < 0: forever). Other goroutines
// run meanwhile.
func (p *Poller) Wait(d time.Duration) error {
	var id [1]int32
	_, err := p.Await(id[:], d)
	return err
}

// Await is Wait that reports the ids of the descriptors, as Ready does.
func (p *Poller) Await(ids []int32, d time.Duration) (int, error) {
	ms := -1
	if d >= 0 {
		ms = int((d + time.Millisecond - 1) / time.Millisecond)
	}
	var events [64]unix.EpollEvent
	r, err := unix.EpollWait(p.epoll, events[:min(len(events), len(ids))], ms)
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return p.take(events[:r], ids), nil
}

// take gives the ids of the descriptors among events, and drains the poller's own.
func (p *Poller) take(events []unix.EpollEvent, ids []int32) (n int) {
	for _, ev := range events {
		switch ev.Fd {
		case eventID:
			p.drainEvent()
			continue
		case wakeID:
			p.drainWake(false) // further datagrams end the next wait
			continue
		}
		ids[n] = ev.Fd
		n++
	}
	return n
}

// takeParked ends a Park if there is something.
func (p *Poller) takeParked(epoll uintptr) (done bool) {
	var events [1]unix.EpollEvent
	var ids [1]int32
	n, err := result(syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&events)),
		uintptr(len(events)), 0, 0, 0))
	if err == unix.EINTR {
		n, err = 1, nil // Park may return at any time
	} else if n > 0 {
		p.take(events[:n], ids[:])
	}
	p.failed = err
	return n != 0 || err != nil
}

// Park is Wait(-1) that blocks no thread: the runtime's poller watches the descriptors. During a system call
// that blocks, the runtime's monitor thread wakes up every 20 µs for the first milliseconds, for which the
// ranks that share a core pay. Where a rank has its own core, Wait returns a microsecond sooner.
func (p *Poller) Park() error {
	if p.parking == nil {
		fd, err := unix.FcntlInt(uintptr(p.epoll), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("dup", err)
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			unix.Close(fd)
			return os.NewSyscallError("fcntl", err)
		}
		p.parking = os.NewFile(uintptr(fd), "epoll")
		if p.raw, err = p.parking.SyscallConn(); err != nil {
			return err
		}
		p.look = p.takeParked
	}
	err := p.raw.Read(p.look)
	if err == nil {
		err = p.failed
	}
	return err
}

// Nest watches another poller: id comes back in Ready while that one has something, or has been woken.
func (p *Poller) Nest(inner *Poller, id int32) error { return p.Add(inner.epoll, id, false) }

// Unnest ends that.
func (p *Poller) Unnest(inner *Poller) error { return p.Remove(inner.epoll) }

// Descriptor is readable, for another epoll, while a Wait would not block.
func (p *Poller) Descriptor() int { return p.epoll }

// Drain discards pending ends of a Wait.
func (p *Poller) Drain() {
	if p.woken.Load() {
		p.drainEvent()
	}
	p.drainWake(true)
}

func (p *Poller) drainEvent() {
	syscall.RawSyscall(unix.SYS_READ, uintptr(p.event), uintptr(unsafe.Pointer(&p.ended)),
		uintptr(len(p.ended)))
	p.woken.Store(false) // a Wake in between is of the Wait that ends
}

// Wake ends a Wait, the present or else the next.
func (p *Poller) Wake() {
	if p.woken.Swap(true) {
		return
	}
	one := [8]byte{0: 1}
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(p.event), uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}

// Close releases the poller.
func (p *Poller) Close() {
	if p.parking != nil {
		p.parking.Close()
	}
	if p.wake != 0 {
		unix.Close(p.wake)
	}
	unix.Close(p.event)
	unix.Close(p.epoll)
}

// Map gives n bytes of zeroed memory off the Go heap, page-aligned.
func Map(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	mapped.Add(int64(len(b)))
	return b, err
}

// Unmap gives back what Map gave.
func Unmap(b []byte) error {
	n := int64(len(b))
	err := unix.Munmap(b)
	if err == nil {
		mapped.Add(-n)
	}
	return err
}

var mapped atomic.Int64

// Mapped returns the number of bytes mapped by Map and not unmapped yet. The system's list of mappings does
// not show who made them.
func Mapped() int64 { return mapped.Load() }

// Yield offers the processor to other threads that want it.
func Yield() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// Dup duplicates a descriptor; programs that this process starts do not get it.
func Dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) }

// Acknowledged reports whether the other end's kernel has acknowledged what a TCP socket has sent, all of it
// or something within d: whether the connection stands, whatever the process at that end does. It is true of
// sockets of other kinds.
func Acknowledged(fd int, d time.Duration) bool {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err != nil || i.Unacked == 0 && i.Probes == 0 ||
		time.Duration(i.Last_ack_recv)*time.Millisecond <= d
}

// Unacknowledged returns the number of bytes sent by a socket, with the end of the stream counted as one,
// that the other end's kernel has not acknowledged. It is 0 if unknown.
func Unacknowledged(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// ShutdownWrite ends a socket's outgoing stream. The socket can still receive.
func ShutdownWrite(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) } // a connection that is cut has ended

// TCPCarried returns the bytes that a TCP socket has received, and the number of segments with data that it
// has sent, each counted once.
func TCPCarried(fd int) (received, sent uint64, err error) {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, 0, err
	}
	return i.Bytes_received, uint64(i.Data_segs_out - i.Total_retrans), nil
}
