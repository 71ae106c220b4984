package sys

import (
	"fmt"
	"hash/fnv"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the reading of Go's monotonic clock at a moment, in ns. Processes with an equal clock
// read the same clock.
func Monotonic(at time.Time) (ns int64, clock uint64, err error) {
	id, err := BootID()
	if err != nil {
		return 0, 0, err
	}
	// A time namespace has an offset of its own.
	namespace, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !os.IsNotExist(err) {
		return 0, 0, err
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	h.Write([]byte(namespace))
	best := time.Duration(1 << 62)
	for range 32 { // between two readings of which this thread may have been kept from running
		var ts unix.Timespec
		before := time.Since(at)
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return 0, 0, fmt.Errorf("the monotonic clock: %w", err)
		}
		after := time.Since(at)
		if took := after - before; took < best {
			best, ns = took, ts.Nano()-int64(before+took/2)
		}
	}
	return ns, h.Sum64(), nil
}
