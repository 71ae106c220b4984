package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// resident returns the resident memory of this process in bytes, after garbage collection. Pages that were
// never written are not counted: they belong to the program's file, which all ranks of a machine share.
func resident() (int, error) {
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	return parseResident(string(text))
}

// parseResident adds up the written pages, shared and private.
func parseResident(rollup string) (int, error) {
	sum := 0
	for _, name := range []string{"Private_Dirty:", "Shared_Dirty:"} {
		_, rest, found := strings.Cut(rollup, "\n"+name)
		if !found {
			return 0, fmt.Errorf("resident memory: /proc/self/smaps_rollup has no %s", name)
		}
		line, _, _ := strings.Cut(rest, "\n")
		kb, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(line, " kB")), 10, 40)
		if err != nil {
			return 0, fmt.Errorf("resident memory: /proc/self/smaps_rollup: %s%s", name, line)
		}
		sum += int(kb) << 10
	}
	return sum, nil
}

// settledResident returns a reading that the next one confirms, if there is one soon: other activity, such as
// the search that precedes the report of a quiet rank, may hold memory for a moment.
func (s *session) settledResident() (n int, err error) {
	const tries, pause, alike = 40, 20 * time.Millisecond, 64 << 10
	last := -alike - 1
	for range tries {
		if n, err = s.resident(); err != nil || max(n, last)-min(n, last) <= alike {
			break
		}
		last = n
		time.Sleep(pause)
	}
	return n, err
}

// takeStock records the memory of rank 0 before its first connection.
func (s *session) takeStock() (err error) {
	if s.world.Rank() != 0 {
		return nil
	}
	for range 2 { // the first reading allocates the memory that readings need
		if s.before, err = s.settledResident(); err != nil {
			return err
		}
	}
	return nil
}
