package topology

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func machine(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestReadGroupsHardwareThreadsByCore(t *testing.T) {
	root := machine(map[string]string{
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,4\n",
		"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1,5\n",
		"sys/devices/system/cpu/cpu5/topology/thread_siblings_list": "1,5\n",
		"sys/devices/system/cpu/cpu6/topology/thread_siblings_list": "rubbish\n",
	})
	m := read(root, []int{0, 1, 5, 6})
	require.Equal(t, [][]int{{0}, {1, 5}, {6}}, m.Cores, "processor 4 is not in the mask")
	require.Equal(t, 3, m.UsableCores())
}

func TestReadTellsNodesAndSockets(t *testing.T) {
	root := machine(map[string]string{
		"sys/devices/system/node/node0/cpulist":                     "0,2\n",
		"sys/devices/system/node/node3/cpulist":                     "1,3\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id":  "0\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id":  "1\n",
		"sys/devices/system/cpu/cpu2/topology/physical_package_id":  "-1\n",
		"sys/devices/system/cpu/cpu3/topology/physical_package_id":  "rubbish\n",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0\n",
	})
	m := read(root, []int{0, 1, 2, 3, 4})
	require.Equal(t, []int{0, 3, 0, 3, 0}, m.NodeOf, "of processor 4 nothing is known")
	require.Equal(t, []int{0, 1, 0, 0, 0}, m.SocketOf)
}

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
	}{
		{"none", nil, 0},
		{"version 2, no limit", map[string]string{"proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/cpu.max": "max 100000\n"}, 0},
		{"version 2, the parent's is smaller", map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max": "400000 100000\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"},
			1.5},
		{"version 2 in a container", map[string]string{"proc/self/cgroup": "0::/not/here\n",
			"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2},
		{"version 1", map[string]string{"proc/self/cgroup": "3:cpu,cpuacct:/a\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us":  "50000\n",
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, 0.5},
		{"version 1, no limit", map[string]string{"proc/self/cgroup": "3:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 0},
	} {
		require.Equal(t, c.want, quota(machine(c.files)), c.name)
	}
	require.Equal(t, 1, (&Machine{Cores: [][]int{{0}, {1}}, Quota: 0.5}).UsableCores())
	require.Equal(t, 2, (&Machine{Cores: [][]int{{0}, {1}}, Quota: 64}).UsableCores())
}

func TestReadSeesThisMachine(t *testing.T) {
	m, err := Read()
	require.NoError(t, err)
	require.NotEmpty(t, m.CPUs)
	require.NotEmpty(t, m.Cores)
}

func FuzzParseCPUList(f *testing.F) {
	for _, text := range []string{"", "0", "0-3,8,10-11", "3-1", "0-4000000000", "1,,2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := ParseCPUList(text)
		if err != nil {
			return
		}
		again, err := ParseCPUList(FormatCPUList(cpus))
		require.NoError(t, err)
		require.Equal(t, cpus, again)
	})
}

func TestProcessorsOfThisMachine(t *testing.T) {
	require.Positive(t, Online())
	if n := Possible(); n != 0 {
		require.GreaterOrEqual(t, n, Online())
	}
}
