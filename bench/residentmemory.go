package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/sys"
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

// takeStock notes the memory that rank 0 has before its first connection.
func (s *session) takeStock() (err error) {
	if s.world.Rank() != 0 {
		return nil
	}
	for range 2 { // the first reading brings in what readings take
		if s.before, err = s.resident(); err != nil {
			return err
		}
	}
	return nil
}

// residentOf measures how much resident memory n bytes of fresh buffers take when all of them have been
// written.
func (s *session) residentOf(n int) (int, error) {
	before, err := s.resident()
	if err != nil {
		return 0, err
	}
	b, err := sys.Map(n)
	if err != nil {
		return 0, fmt.Errorf("large buffers of %d bytes, to compare with: %w", n, err)
	}
	defer sys.Unmap(b)
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	after, err := s.resident()
	return after - before, err
}
