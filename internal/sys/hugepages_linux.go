package sys

import "golang.org/x/sys/unix"

// CanCollapse reports whether the system can carry out Collapse, which Linux can since 6.1.
func CanCollapse() bool {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, 0, 0, unix.MADV_COLLAPSE)
	return errno == 0
}

// Collapse moves memory of this process, aligned to huge pages, onto such pages. It may take a millisecond
// for each. It fails with EAGAIN if that is not possible at the moment.
func Collapse(address, size uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, address, size, unix.MADV_COLLAPSE)
	if errno != 0 {
		return errno
	}
	return nil
}
