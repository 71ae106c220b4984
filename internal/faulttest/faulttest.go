//go:build linux

// Package faulttest makes memory whose pages never come, as a malicious peer can. It is for tests.
package faulttest

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// Memory is a mapping whose missing pages wait for a program that serves them (userfaultfd), and nobody does.
type Memory struct {
	Bytes []byte
	FD    int // closing the last copy of the descriptor lets the pages come
}

const (
	ioctlAPI      = 0xc018aa3f // UFFDIO_API
	ioctlRegister = 0xc020aa00 // UFFDIO_REGISTER
	apiVersion    = 0xaa
	modeMissing   = 1
)

// systemCall is the number of userfaultfd(2), which package syscall does not know.
var systemCall = map[string]uintptr{"amd64": 323, "arm64": 282}[runtime.GOARCH]

// New maps n bytes of such memory. It fails if the system denies userfaultfd to this process; a test skips
// then.
func New(n int) (*Memory, error) {
	mem, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	fd, err := Withhold(mem)
	if err != nil {
		syscall.Munmap(mem)
		return nil, err
	}
	return &Memory{mem, fd}, nil
}

// Withhold makes accesses to the missing pages of a mapping wait, including the kernel's own.
func Withhold(mem []byte) (fd int, err error) {
	if systemCall == 0 {
		return -1, fmt.Errorf("userfaultfd: its number on %s is not known here", runtime.GOARCH)
	}
	r, _, e := syscall.Syscall(systemCall, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0, 0)
	if e != 0 {
		return -1, fmt.Errorf("userfaultfd: %w", e)
	}
	_, _, e = syscall.Syscall(syscall.SYS_IOCTL, r, ioctlAPI, uintptr(unsafe.Pointer(&[3]uint64{apiVersion})))
	if e == 0 {
		_, _, e = syscall.Syscall(syscall.SYS_IOCTL, r, ioctlRegister, uintptr(unsafe.Pointer(&[4]uint64{
			uint64(uintptr(unsafe.Pointer(&mem[0]))), uint64(len(mem)), modeMissing})))
	}
	if e != 0 {
		syscall.Close(int(r))
		return -1, fmt.Errorf("userfaultfd: %w", e)
	}
	return int(r), nil
}

// Serve lets the pages come, unless another process has a copy of the descriptor. It may be called again.
func (m *Memory) Serve() {
	if m.FD >= 0 {
		syscall.Close(m.FD)
		m.FD = -1
	}
}
