package sys

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foreignPiece is the number of bytes of another process's memory that are copied in one call, whose fixed
// cost is that of copying about 20 KiB (docs/internals/adr/0022).
const foreignPiece = 4 << 20

// provenFor is how long the identity of a process stays valid after a check: too short for the system to
// reuse its number.
const provenFor = 5 * time.Millisecond

// began is the start of this process: time.Since(began) reads one clock, where time.Now reads two.
var began = time.Now()

// Foreign is the memory of another process.
type Foreign struct {
	Pid      int
	Proof    uint64 // address of bytes that only this process has
	Secret   [32]byte
	isProven bool
	proven   time.Duration // since began, if isProven
	calls    uint64        // odd during a system call; steps at both ends of each
}

// Call is a number that is odd while a system call of Read or Write lasts, and another one for each. Any
// goroutine may ask for it.
func (f *Foreign) Call() uint64 { return atomic.LoadUint64(&f.calls) }

// Blocked reports whether a thread of this process is held up in a system call of Read or Write: it neither
// has a processor nor waits for one. It is true if /proc does not tell.
func (f *Foreign) Blocked() bool {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return true
	}
	for _, t := range threads {
		text, err := os.ReadFile("/proc/self/task/" + t.Name() + "/syscall")
		if os.IsPermission(err) {
			return true
		}
		var call, pid int // there is a word instead for a thread that is not held up
		fmt.Sscanf(string(text), "%d 0x%x", &call, &pid)
		if (call == unix.SYS_PROCESS_VM_READV || call == unix.SYS_PROCESS_VM_WRITEV) && pid == f.Pid {
			return true
		}
	}
	return false
}

// Prove reads the proof: an error if the process does not have it, or may not be read.
func (f *Foreign) Prove() error {
	var proof [len(f.Secret)]byte
	if err := f.copyPiece(unix.SYS_PROCESS_VM_READV, proof[:], f.Proof); err != nil {
		return err
	}
	if proof != f.Secret {
		return unix.ESRCH
	}
	return nil
}

// Read copies memory of the process, at an address there, to p. Now and then the proof is read too: a process
// that has the same number by now has another one.
func (f *Foreign) Read(p []byte, addr uint64) error {
	return f.copy(unix.SYS_PROCESS_VM_READV, p, addr)
}

// Write copies p to memory of the process, at an address there, which Read could read.
func (f *Foreign) Write(p []byte, addr uint64) error {
	return f.copy(unix.SYS_PROCESS_VM_WRITEV, p, addr)
}

// copy copies with one of two system calls, from a process that has proved itself lately.
func (f *Foreign) copy(call uintptr, p []byte, addr uint64) error {
	if now := time.Since(began); !f.isProven || now-f.proven > provenFor {
		if err := f.Prove(); err != nil {
			return err
		}
		f.proven, f.isProven = now, true
	}
	for len(p) > 0 {
		k := min(len(p), foreignPiece)
		if err := f.copyPiece(call, p[:k], addr); err != nil {
			return err
		}
		p, addr = p[k:], addr+uint64(k)
	}
	return nil
}

// copyPiece copies one piece.
func (f *Foreign) copyPiece(call uintptr, p []byte, addr uint64) error {
	for len(p) > 0 {
		local := unix.Iovec{Base: &p[0]}
		local.SetLen(len(p))
		remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(p)}
		// The call is no raw one: the process can give memory whose pages never come (userfaultfd, or a file
		// of a file system that does not answer). This thread waits for them then, but the runtime, and its
		// garbage collector, go on.
		StoreRelease(&f.calls, f.calls+1)
		n, _, e := syscall.Syscall6(call, uintptr(f.Pid), uintptr(unsafe.Pointer(&local)), 1,
			uintptr(unsafe.Pointer(&remote)), 1, 0)
		StoreRelease(&f.calls, f.calls+1)
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return e
		case n == 0:
			return unix.EFAULT
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return nil
}

// LetBeRead allows processes of the same user to read this one's memory where the system otherwise allows it
// to ancestors alone.
func LetBeRead() {
	// systems without that restriction do not know it
	unix.Prctl(unix.PR_SET_PTRACER, unix.PR_SET_PTRACER_ANY, 0, 0, 0)
}
