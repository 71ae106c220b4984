package topology

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/sys"
)

// Domain is a kind of parts that a machine has, each with processors of its own.
type Domain int

// Domains.
const (
	Socket Domain = iota // a processor package
	NUMA                 // a NUMA node
	L3                   // the processors that share an L3 cache
)

// Inside returns the number of the part of the machine that all processors of the calling thread's affinity
// mask belong to. It reports false if they belong to several, or the system does not tell.
func Inside(d Domain) (int, bool) {
	cpus, err := sys.Affinity()
	if err != nil {
		return 0, false
	}
	return inside(os.DirFS("/"), d, cpus)
}

func inside(root fs.FS, d Domain, cpus []int) (int, bool) {
	var list []Node
	if d == NUMA {
		list = nodes(root)
	}
	part := -1
	for _, cpu := range cpus {
		n := -1
		switch d {
		case Socket:
			n = number(root, socketFile(cpu))
		case NUMA:
			for _, node := range list {
				if slices.Contains(node.CPUs, cpu) {
					n = node.ID
				}
			}
		case L3:
			n = sharesL3With(root, cpu)
		}
		if n < 0 || part >= 0 && n != part {
			return 0, false
		}
		part = n
	}
	return part, part >= 0
}

// sharesL3With returns the first processor that shares cpu's L3 cache, and thereby names the cache; -1 where
// the system tells of none.
func sharesL3With(root fs.FS, cpu int) int {
	levels, _ := fs.Glob(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index*/level", cpu))
	for _, level := range levels {
		if number(root, level) != 3 {
			continue
		}
		text, err := fs.ReadFile(root, path.Join(path.Dir(level), "shared_cpu_list"))
		if err != nil {
			continue
		}
		if list, err := ParseCPUList(strings.TrimSpace(string(text))); err == nil && len(list) > 0 {
			return slices.Min(list)
		}
	}
	return -1
}

// number reads a file with a number that is not negative; -1 if there is none.
func number(root fs.FS, name string) int {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return max(n, -1)
}
