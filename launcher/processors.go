package launcher

import (
	"fmt"
	"os"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
)

// processorsID returns a text that is equal for processes that may run on the same processors of one machine,
// in whatever namespaces they are, and for no others. Ranks of two hosts with the same text compete for these
// processors, so they are placed together. Containers whose control groups limit their time do not compete.
// It is empty if the machine is unknown.
func processorsID(m *topology.Machine) string {
	boot, err := sys.BootID()
	if err != nil {
		return ""
	}
	id := boot + " " + topology.FormatCPUList(m.CPUs)
	if m.Quota > 0 {
		group, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return ""
		}
		// In a namespace of its own, each container sees the same path.
		namespace, _ := os.Readlink("/proc/self/ns/cgroup")
		id += fmt.Sprintf(" %s %s", namespace, group)
	}
	return id
}
