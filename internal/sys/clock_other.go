//go:build !linux

package sys

import (
	"errors"
	"time"
)

// Monotonic is not known on this system.
func Monotonic(time.Time) (ns int64, clock uint64, err error) {
	return 0, 0, errors.ErrUnsupported
}
