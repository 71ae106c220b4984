package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// maxCPU bounds the numbers in a list, so that "0-4000000000" takes no memory.
const maxCPU = 1 << 16

// ParseCPUList parses a list of processors in the kernel's format, such as "0-3,8,10-11". The list may be
// empty.
func ParseCPUList(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err1 := strconv.ParseUint(from, 10, 31)
		high, err2 := strconv.ParseUint(to, 10, 31)
		if err1 != nil || err2 != nil || low > high || high >= maxCPU {
			return nil, fmt.Errorf("%.40q in the list of processors %.80q is neither a number nor a "+
				"range such as 0-3", part, text)
		}
		for cpu := low; cpu <= high; cpu++ {
			if len(cpus) >= maxCPU {
				return nil, fmt.Errorf("the list of processors %.80q has more than %d entries", text, maxCPU)
			}
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}

// FormatCPUList formats an ascending list of processors, or of ranks, in the kernel's format.
func FormatCPUList(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d-%d", cpus[i], cpus[j]))
		} else {
			parts = append(parts, strconv.Itoa(cpus[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
