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

// resident is how much memory of this process the system holds, in bytes, once garbage has been given back.
// Pages that nobody has written are not counted: those are of the program's file, which all ranks of a
// machine share.
func resident() (int, error) {
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	return parseResident(string(text))
}

// parseResident adds up the pages that have been written, those which other processes see too and those which
// they do not.
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

// settledResident is a reading that the next confirms, if there is such a one soon: what goes on beside the
// benchmark, such as the search that precedes the report of a quiet rank, may hold memory for a moment.
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

// takeStock notes the memory that rank 0 has before its first connection.
func (s *session) takeStock() (err error) {
	if s.world.Rank() != 0 {
		return nil
	}
	for range 2 { // the first reading brings in what readings take
		if s.before, err = s.settledResident(); err != nil {
			return err
		}
	}
	return nil
}
