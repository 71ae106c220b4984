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
