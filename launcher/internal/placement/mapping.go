package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mapping says how ranks are assigned to hosts.
type Mapping struct {
	ByNode  bool // one rank to each host in turn; otherwise a host's slots are filled first
	PerNode int  // if not 0, the largest number of ranks on each host
}

// ParseMapping parses the value of --map-by.
func ParseMapping(text string) (m Mapping, err error) {
	switch text {
	case "core", "slot", "":
		return m, nil
	case "node":
		return Mapping{ByNode: true}, nil
	}
	if rest, ok := strings.CutPrefix(text, "ppr:"); ok {
		if number, ok := strings.CutSuffix(rest, ":node"); ok {
			m.PerNode, err = strconv.Atoi(number)
			if err == nil && m.PerNode > 0 {
				return m, nil
			}
		}
	}
	return m, fmt.Errorf("%q is neither core nor node nor ppr:N:node", text)
}

// Assign returns the host, by index, of each of n ranks; slots has the slots of each host. If there are more
// ranks than slots, the hosts take more in turn; with PerNode, which are the slots then, that is an error.
func (m Mapping) Assign(slots []int, n int) (of []int, err error) {
	total := 0
	for _, s := range slots {
		total += s
	}
	if m.PerNode > 0 && n > total {
		return nil, fmt.Errorf("%d ranks at %d a host need %d hosts, and there are %d",
			n, m.PerNode, (n+m.PerNode-1)/m.PerNode, len(slots))
	}
	of = make([]int, 0, n)
	for len(of) < n {
		of = m.deal(of, slices.Clone(slots), n)
	}
	return of, nil
}

// deal assigns ranks until there are n or the slots are used up.
func (m Mapping) deal(of, slots []int, n int) []int {
	if !m.ByNode {
		for i := range slots {
			for ; slots[i] > 0 && len(of) < n; slots[i]-- {
				of = append(of, i)
			}
		}
		return of
	}
	for given := true; given; {
		given = false
		for i := range slots {
			if slots[i] > 0 && len(of) < n {
				of, given = append(of, i), true
				slots[i]--
			}
		}
	}
	return of
}
