package file

import (
	"errors"
	"os"
	"syscall"
)

// preallocate reserves room up to an offset, and extends the file to it.
func preallocate(f *os.File, size int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}

// seekHole is whence of lseek: to the first hole from an offset on.
const seekHole = 4

// holeIn returns the offset of the first hole that begins in a range, if the file system tells. File systems
// that do not know of holes report one at the end of the file.
func holeIn(f *os.File, lo, hi int64) (at int64, is bool) {
	at, err := f.Seek(lo, seekHole)
	return at, err == nil && at < hi
}

// blockOf returns the size of the file system's blocks.
func blockOf(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blksize > 0 {
		return int64(st.Blksize)
	}
	return 4096
}
