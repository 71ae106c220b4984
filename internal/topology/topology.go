// Package topology tells what of this machine the process may use: processors from the affinity mask, grouped
// into cores, and the share of them that the control group grants.
package topology

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/weft-mpi/weft/internal/sys"
)

// Machine is what the calling thread may use of this machine.
type Machine struct {
	CPUs  []int   // the processors of the affinity mask
	Cores [][]int // the same by physical core: a core with two hardware threads has two
	Quota float64 // processors' worth of time that the control group grants; 0 when it sets no limit

	// By index of Cores: the number of the core's NUMA node, and of its socket. They are 0 where the system
	// does not tell.
	NodeOf, SocketOf []int
}

// Read looks at the machine as it is now.
func Read() (*Machine, error) {
	cpus, err := sys.Affinity()
	if err != nil {
		return nil, err
	}
	return read(os.DirFS("/"), cpus), nil
}

func read(root fs.FS, cpus []int) *Machine {
	m := &Machine{CPUs: cpus, Quota: quota(root)}
	nodeOf := make(map[int]int)
	for _, n := range nodes(root) {
		for _, cpu := range n.CPUs {
			nodeOf[cpu] = n.ID
		}
	}
	placed := make(map[int]bool)
	usable := make(map[int]bool)
	for _, cpu := range cpus {
		usable[cpu] = true
	}
	for _, cpu := range cpus {
		if placed[cpu] {
			continue
		}
		var core []int
		for _, sibling := range siblings(root, cpu) {
			if usable[sibling] && !placed[sibling] {
				placed[sibling] = true
				core = append(core, sibling)
			}
		}
		m.Cores = append(m.Cores, core)
		m.NodeOf = append(m.NodeOf, nodeOf[cpu])
		m.SocketOf = append(m.SocketOf, socket(root, cpu))
	}
	return m
}

// socket is the number of the processor's socket; 0 where the system does not tell, or writes -1 for it as
// some machines do.
func socket(root fs.FS, cpu int) int {
	return max(number(root, socketFile(cpu)), 0)
}

func socketFile(cpu int) string {
	return fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu)
}

// siblings lists the processors of cpu's core, cpu at least.
func siblings(root fs.FS, cpu int) []int {
	text, err := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
		cpu))
	if err != nil {
		return []int{cpu}
	}
	list, err := ParseCPUList(strings.TrimSpace(string(text)))
	if err != nil {
		return []int{cpu}
	}
	for _, c := range list {
		if c == cpu {
			return list
		}
	}
	return []int{cpu}
}

// UsableCores is how many ranks can compute at once without getting in each other's way: at least 1.
func (m *Machine) UsableCores() int {
	n := len(m.Cores)
	if m.Quota > 0 {
		n = min(n, int(m.Quota))
	}
	return max(n, 1)
}

// Node is a NUMA node and its processors.
type Node struct {
	ID   int
	CPUs []int
}

// Nodes lists the NUMA nodes of the machine; none where the system does not tell.
func Nodes() []Node { return nodes(os.DirFS("/")) }

func nodes(root fs.FS) []Node {
	var out []Node
	files, _ := fs.Glob(root, "sys/devices/system/node/node*/cpulist")
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		var n Node
		if _, err := fmt.Sscanf(path.Base(path.Dir(file)), "node%d", &n.ID); err != nil {
			continue
		}
		n.CPUs, _ = ParseCPUList(strings.TrimSpace(string(text)))
		out = append(out, n)
	}
	return out
}
