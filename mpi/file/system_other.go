//go:build !linux

package file

import (
	"errors"
	"os"
)

func preallocate(f *os.File, _ int64) error {
	return &os.PathError{Op: "fallocate", Path: f.Name(), Err: errors.ErrUnsupported}
}

func holeIn(*os.File, int64, int64) (at int64, is bool) { return 0, false }

func blockOf(os.FileInfo) int64 { return 4096 }
