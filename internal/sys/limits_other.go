//go:build !linux

package sys

import (
	"errors"
	"runtime"
)

// Release is the system's name.
func Release() string { return runtime.GOOS }

// ProcessLimit cannot be known on this system.
func ProcessLimit() (uint64, error) { return 0, errors.ErrUnsupported }

// Limit is one of the limits that the system sets this process.
type Limit struct{ Name, Value string }

// Limits lists none: they are read on Linux only.
func Limits() []Limit { return nil }
