package topology

import (
	"os"
	"runtime"
	"strings"
)

// Online is how many processors the machine has in use, whichever of them this process may run on.
func Online() int {
	if text, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if list, err := ParseCPUList(strings.TrimSpace(string(text))); err == nil {
			return max(1, len(list))
		}
	}
	return runtime.NumCPU()
}

// Possible is how many processors the machine can ever have while it runs: the same for every process on it, at any time. 0 where that is not
// known.
func Possible() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		return 0
	}
	list, err := ParseCPUList(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return len(list)
}
