package topology

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Processors are inside a part of the machine if all of them are, and the system says so of each.
func TestInside(t *testing.T) {
	root := machine(map[string]string{
		"sys/devices/system/node/node0/cpulist":                        "0-1\n",
		"sys/devices/system/node/node3/cpulist":                        "2-3\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id":     "0\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id":     "0\n",
		"sys/devices/system/cpu/cpu2/topology/physical_package_id":     "0\n",
		"sys/devices/system/cpu/cpu3/topology/physical_package_id":     "-1\n",
		"sys/devices/system/cpu/cpu0/cache/index0/level":               "1\n",
		"sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list":     "0\n",
		"sys/devices/system/cpu/cpu0/cache/index3/level":               "3\n",
		"sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list":     "0-1,4\n",
		"sys/devices/system/cpu/cpu1/cache/index3/level":               "3\n",
		"sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list":     "0-1,4\n",
		"sys/devices/system/cpu/cpu2/cache/index3/level":               "3\n",
		"sys/devices/system/cpu/cpu2/cache/index3/shared_cpu_list":     "2-3\n",
		"sys/devices/system/cpu/cpu3/cache/index3/level":               "3\n",
		"sys/devices/system/cpu/cpu3/cache/index3/shared_cpu_list":     "rubbish\n",
		"sys/devices/system/cpu/cpu4/cache/index3/level":               "rubbish\n",
		"sys/devices/system/cpu/cpu4/topology/physical_package_id":     "rubbish\n",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list":    "0\n",
		"sys/devices/system/cpu/cpu0/cache/index3/coherency_line_size": "64\n",
	})
	const none = -1
	for _, c := range []struct {
		cpus             []int
		socket, node, l3 int
	}{
		{[]int{0}, 0, 0, 0},
		{[]int{0, 1}, 0, 0, 0},
		{[]int{2}, 0, 3, 2},
		{[]int{1, 2}, 0, none, none},
		{[]int{3}, none, 3, none},
		{[]int{0, 3}, none, none, none},
		{[]int{4}, none, none, none},
		{nil, none, none, none},
	} {
		for d, want := range map[Domain]int{Socket: c.socket, NUMA: c.node, L3: c.l3} {
			got, ok := inside(root, d, c.cpus)
			require.Equal(t, want != none, ok, "%v in domain %d", c.cpus, d)
			if ok {
				require.Equal(t, want, got, "%v in domain %d", c.cpus, d)
			}
		}
	}
}
