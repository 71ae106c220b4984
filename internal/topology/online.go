package topology

import (
	"os"
	"runtime"
	"strings"
)

// Online is how many processors the machine has in use, whichever of them this process may run on.
func Online() int {
	if n := count("online"); n > 0 {
		return n
	}
	return runtime.NumCPU()
}

// Possible is how many processors the machine can ever have while it runs: the same for every process on it,
// at any time. 0 where that is not known.
func Possible() int { return count("possible") }

// count is how many processors are in one of the system's lists of them; 0 where it has none.
func count(list string) int {
	text, err := os.ReadFile("/sys/devices/system/cpu/" + list)
	if err != nil {
		return 0
	}
	cpus, err := ParseCPUList(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return len(cpus)
}
