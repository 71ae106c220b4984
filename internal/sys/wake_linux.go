package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TokenSize is the length of the token of a WakeAddress in bytes.
const TokenSize = 16

// WakeAddress is the address at which another process ends the waits of a Poller: a datagram socket with an
// abstract name. The kernel drops datagrams without the token, so a process that only knows the name cannot
// disturb it.
type WakeAddress struct {
	name  unix.RawSockaddrUnix
	size  uintptr
	token [TokenSize]byte
}

// NewWakeAddress makes an address of the abstract name of a socket (without the leading zero byte) and a
// token.
func NewWakeAddress(name string, token [TokenSize]byte) (*WakeAddress, error) {
	a := &WakeAddress{token: token}
	a.name.Family = unix.AF_UNIX
	if len(name) >= len(a.name.Path) {
		return nil, fmt.Errorf("a socket name of %d bytes; at most %d are possible", len(name),
			len(a.name.Path)-1)
	}
	for i := range len(name) {
		a.name.Path[1+i] = int8(name[i])
	}
	a.size = unsafe.Offsetof(a.name.Path) + 1 + uintptr(len(name))
	return a, nil
}

// Open binds the poller's wake socket to an address. Close ends it.
func (p *Poller) Open(a *WakeAddress) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	err = errors.Join(a.filter(fd), a.bind(fd),
		os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeID})))
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("wake socket: %w", err)
	}
	p.wake = fd
	return nil
}

func (a *WakeAddress) bind(fd int) error {
	_, _, e := syscall.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&a.name)), a.size)
	if e != 0 {
		return os.NewSyscallError("bind", e)
	}
	return nil
}

// filter has the kernel drop what does not begin with the token.
func (a *WakeAddress) filter(fd int) error {
	const words = TokenSize / 4
	var code []unix.SockFilter
	for i := range words {
		value := binary.BigEndian.Uint32(a.token[4*i:])
		code = append(code,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(4 * i)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value,
				Jf: uint8(2*(words-i) - 1)})
	}
	code = append(code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: TokenSize},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K})
	return os.NewSyscallError("filter", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}))
}

// Signal ends the current or else the next wait of another process's poller. It never blocks, whatever that
// process does: a full socket already has a datagram that ends the wait.
func (p *Poller) Signal(a *WakeAddress) {
	if a.send(p.wake) != syscall.EAGAIN {
		return
	}
	// Either that socket is full or ours has sent to many that have not yet looked. A fresh one has sent
	// nothing.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	a.send(fd)
	unix.Close(fd)
}

func (a *WakeAddress) send(fd int) syscall.Errno {
	for {
		_, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&a.token)),
			TokenSize,
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(&a.name)), a.size)
		if e != syscall.EINTR {
			return e
		}
	}
}

// A WakeSocket is where another process wakes a goroutine, which takes no thread while it sleeps.
type WakeSocket struct {
	file *os.File
	conn syscall.RawConn
	fd   int
}

// NewWakeSocket opens the socket of an address. Close it.
func NewWakeSocket(a *WakeAddress) (*WakeSocket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &WakeSocket{file: os.NewFile(uintptr(fd), "wake socket"), fd: fd}
	if err = errors.Join(a.filter(fd), a.bind(fd)); err == nil {
		s.conn, err = s.file.SyscallConn()
	}
	if err != nil {
		s.file.Close()
		return nil, fmt.Errorf("wake socket: %w", err)
	}
	return s, nil
}

// Wait blocks until there is a signal that no Wait has taken, or d has passed (d < 0: for ever). After Close
// it returns an error.
func (s *WakeSocket) Wait(d time.Duration) error {
	until := time.Time{}
	if d >= 0 {
		until = time.Now().Add(d)
	}
	if err := s.file.SetReadDeadline(until); err != nil {
		return err
	}
	err := s.conn.Read(func(fd uintptr) bool {
		var b [1]byte
		n, err := Read(int(fd), b[:])
		return n >= 0 || err != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// Signal is Poller.Signal.
func (s *WakeSocket) Signal(a *WakeAddress) { (&Poller{wake: s.fd}).Signal(a) }

// Close releases the socket, and ends the present Wait.
func (s *WakeSocket) Close() error { return s.file.Close() }

// drainWake removes one datagram or all from the wake socket.
func (p *Poller) drainWake(all bool) {
	if p.wake == 0 {
		return
	}
	var b [1]byte
	for {
		n, err := Read(p.wake, b[:])
		if n < 0 || err != nil || !all {
			return
		}
	}
}

// Prober finds out whether wake sockets are still there.
type Prober struct{ fd int }

// NewProber makes a prober. Close it.
func NewProber() (*Prober, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return &Prober{fd}, nil
}

// Gone reports whether nobody has the socket open any more: it was closed, or its process has ended and
// touches no memory any more. It sends nothing.
func (p *Prober) Gone(a *WakeAddress) bool {
	_, _, e := syscall.Syscall(unix.SYS_CONNECT, uintptr(p.fd), uintptr(unsafe.Pointer(&a.name)), a.size)
	return e == syscall.ECONNREFUSED
}

// Close releases the prober.
func (p *Prober) Close() { unix.Close(p.fd) }
