package sys

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Release is the kernel's name and release.
func Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// ProcessLimit returns how many processes and threads the user of this process may have.
func ProcessLimit() (uint64, error) {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NPROC, &r)
	if os.Getuid() == 0 {
		return math.MaxUint64, err // the limit does not hold for root
	}
	return r.Cur, err
}

// Limit is one of the limits that the system sets this process.
type Limit struct{ Name, Value string }

// Limits lists those that matter to ranks.
func Limits() []Limit {
	var out []Limit
	for _, l := range []struct {
		name     string
		resource int
	}{{"open files", unix.RLIMIT_NOFILE}, {"processes", unix.RLIMIT_NPROC},
		{"locked memory bytes", unix.RLIMIT_MEMLOCK}} {
		var r unix.Rlimit
		if unix.Getrlimit(l.resource, &r) != nil {
			continue
		}
		value := "unlimited"
		if r.Cur != unix.RLIM_INFINITY {
			value = strconv.FormatUint(r.Cur, 10)
		}
		out = append(out, Limit{l.name, value})
	}
	return out
}
