package sys

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SharedMemory makes nameless memory of size bytes that can be handed to other processes as a descriptor. It
// is sparse: pages are there once they are used or reserved. Its size can never change, so nobody who maps it
// is ever left with addresses after its end.
func SharedMemory(size int64) (int, error) {
	fd, err := unix.MemfdCreate("weft", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, size); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sharedSeals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("shared memory of %d bytes: %w", size, err)
	}
	return fd, nil
}

const sharedSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// CheckShared refuses a descriptor that is not memory of SharedMemory of this size. Whoever maps such memory
// can touch all of it: it cannot shrink, and its file system, unlike that of huge pages, makes pages as they
// are touched.
func CheckShared(fd int, size int64) error {
	if err := checkSealed(fd); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("shared memory of a file system of type %#x, not of tmpfs: touching it may fail",
			fs.Type)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Size != size {
		return fmt.Errorf("shared memory of %d bytes, said to be of %d", st.Size, size)
	}
	return nil
}

func checkSealed(fd int) error {
	seals, err := result(syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GET_SEALS, 0))
	if err != nil {
		return fmt.Errorf("not shared memory: %w", err)
	}
	if seals&sharedSeals != sharedSeals {
		return fmt.Errorf("shared memory that is not sealed against a change of its size (seals %#x, not "+
			"%#x)", seals, sharedSeals)
	}
	return nil
}

// SharedID returns the number of shared memory, which no other memory of this machine has meanwhile, and the
// number of the file system that all memory of SharedMemory belongs to.
func SharedID(fd int) (id, fs uint64, err error) {
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Ino, uint64(st.Dev), os.NewSyscallError("fstat", err)
}

// OpenShared opens shared memory of SharedMemory, by its descriptor in another process and its numbers, and
// returns its size too. The system allows it to processes of the same user.
func OpenShared(pid, fd int, id, fs uint64) (opened int, size int64, err error) {
	var room [64]byte
	path := strconv.AppendInt(append(room[:0], "/proc/"...), int64(pid), 10)
	path = append(strconv.AppendInt(append(path, "/fd/"...), int64(fd), 10), 0)
	var st unix.Stat_t
	// Opening it neither waits nor makes it this process's terminal, unless another process has the number by
	// now, and the descriptor is there a file of a file system in user space.
	const flags = unix.O_RDWR | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	here := unix.AT_FDCWD
	opened, err = result(syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(here),
		uintptr(unsafe.Pointer(&path[0])), flags, 0, 0, 0))
	if err != nil {
		return -1, 0, os.NewSyscallError("open", err)
	}
	_, err = result(syscall.RawSyscall(unix.SYS_FSTAT, uintptr(opened), uintptr(unsafe.Pointer(&st)), 0))
	if err != nil {
		err = os.NewSyscallError("fstat", err)
	} else if st.Ino != id || uint64(st.Dev) != fs || st.Mode&unix.S_IFMT != unix.S_IFREG ||
		int(st.Uid) != os.Geteuid() {
		err = fmt.Errorf("descriptor %d of process %d is other memory than expected", fd, pid)
	} else {
		err = checkSealed(opened)
	}
	if err != nil {
		CloseShared(opened)
		return -1, 0, err
	}
	return opened, st.Size, nil
}

// CloseShared closes a descriptor of OpenShared.
func CloseShared(fd int) { syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// result is the result of a raw system call, or -1 and an error. Those here are raw because they wait for no
// other process, and because one that tells the scheduler wakes the runtime's monitor thread where that
// sleeps, as it does in a rank that waits: the thread then wakes up every 20 µs, for which the ranks that
// share a core pay.
func result(r, _ uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

// MapShared maps shared memory. Parts of it can be given back with UnmapShared. If possible it begins where
// one page of the system's page tables begins, below the memory that was mapped before.
func MapShared(fd int, size int) ([]byte, error) {
	var below unsafe.Pointer
	if at := latest.Load(); at > uintptr(size) {
		below = addressAt((at - uintptr(size)) &^ (tableSpan - 1))
	}
	at, _, e := syscall.RawSyscall6(unix.SYS_MMAP, uintptr(below), uintptr(size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE, uintptr(fd), 0)
	if e != 0 {
		return nil, fmt.Errorf("mapping %d bytes of shared memory: %w", size, e)
	}
	p := addressAt(at)
	latest.Store(uintptr(p))
	mapped.Add(int64(size))
	return unsafe.Slice((*byte)(p), size), nil
}

// tableSpan is the memory that one page of the system's page tables describes, on most machines.
const tableSpan = 2 << 20

var latest atomic.Uintptr // where the latest shared memory is mapped

// UnmapShared ends the mapping of whole pages.
func UnmapShared(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	err := unix.MunmapPtr(unsafe.Pointer(&b[0]), uintptr(len(b)))
	if err == nil {
		mapped.Add(-int64(len(b)))
	}
	return err
}

// reservePiece is the number of bytes reserved in one call: a signal ends the call and undoes its work, and
// the runtime sends signals.
const reservePiece = 4 << 20

// Reserve allocates the pages of a part of shared memory, so that using it cannot fail.
func Reserve(fd int, off, n int64) error {
	for n > 0 {
		k := min(n, reservePiece)
		switch err := unix.Fallocate(fd, 0, off, k); err {
		case nil:
			off, n = off+k, n-k
		case unix.EINTR:
		default:
			return err
		}
	}
	return nil
}

// Fill is Reserve for memory that is used at once: it writes zeros there, so that the pages are not zeroed
// one by one when they are touched, and are mapped several at once to who reads there first.
func Fill(fd int, off, n int64) error {
	for n > 0 {
		k, err := result(syscall.RawSyscall6(unix.SYS_PWRITE64, uintptr(fd), uintptr(unsafe.Pointer(&zeros)),
			uintptr(min(n, int64(len(zeros)))), uintptr(off), 0, 0))
		switch {
		case err == nil && k > 0:
			off, n = off+int64(k), n-int64(k)
		case err == nil:
			return unix.ENOSPC
		case err != unix.EINTR:
			return err
		}
	}
	return nil
}

var zeros [64 << 10]byte

// Punch returns the pages of a part of shared memory to the system. The part reads as zeros from then on.
func Punch(fd int, off, n int64) error {
	for {
		err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if err != unix.EINTR {
			return err
		}
	}
}

// PeerOf tells the process and the user at the other end of a Unix connection; the process is 0 if it is not
// to be seen from here.
func PeerOf(c *net.UnixConn) (pid, uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
			unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, 0, fmt.Errorf("credentials of a peer: %w", err)
	}
	return int(cred.Pid), int(cred.Uid), nil
}

// SendDescriptors writes b together with descriptors.
func SendDescriptors(c *net.UnixConn, b []byte, fds ...int) error {
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil && n < len(b) {
		_, err = c.Write(b[n:])
	}
	return err
}

// RecvDescriptors reads available bytes into b, and at most maxFDs descriptors; all others are closed.
func RecvDescriptors(c *net.UnixConn, b []byte, maxFDs int) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	if oobn > 0 {
		messages, parseErr := unix.ParseSocketControlMessage(oob[:oobn])
		err = errors.Join(err, parseErr)
		for i := range messages {
			rights, _ := unix.ParseUnixRights(&messages[i]) // of another kind: no descriptors
			fds = append(fds, rights...)
		}
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return 0, nil, err
	}
	return n, fds, nil
}

// TotalMemory returns the machine's memory in bytes.
func TotalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// UnlimitedAddresses refuses a limit on this process's address space: each peer's memory takes much of that,
// used or not.
func UnlimitedAddresses() error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &r); err != nil {
		return err
	}
	if r.Cur != unix.RLIM_INFINITY {
		return fmt.Errorf("this process may have %d bytes of addresses; shared memory needs to have no "+
			"limit (ulimit -v unlimited)", r.Cur)
	}
	return nil
}

// MapAgain maps the pages of b, which are part of shared memory, a second time. The new mapping begins with
// the page of b's first byte, and stays when the other one is unmapped.
func MapAgain(b []byte) (pages []byte, err error) {
	page := uintptr(unix.Getpagesize())
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	from := first &^ (page - 1)
	size := (first - from + uintptr(len(b)) + page - 1) &^ (page - 1)
	at, _, errno := unix.Syscall6(unix.SYS_MREMAP, from, 0, size, unix.MREMAP_MAYMOVE, 0, 0)
	if errno != 0 {
		return nil, fmt.Errorf("mapping %d bytes of shared memory again: %w", size, errno)
	}
	mapped.Add(int64(size))
	return unsafe.Slice((*byte)(addressAt(at)), size), nil
}

// addressAt is memory that the system has mapped, by its address.
func addressAt(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }
