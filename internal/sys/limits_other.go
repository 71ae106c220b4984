//go:build !linux

package sys

import "runtime"

// Release is the system's name.
func Release() string { return runtime.GOOS }

// Limit is one of the limits that the system sets this process.
type Limit struct{ Name, Value string }

// Limits lists none: they are read on Linux only.
func Limits() []Limit { return nil }
