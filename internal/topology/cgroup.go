package topology

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// quota returns the smallest limit of processor time from this process's control group up to the root, in
// processors; 0 for none. It reads both versions of control groups, as a machine may use both.
func quota(root fs.FS) float64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	limit := 0.0
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		controllers, group := parts[1], parts[2]
		var q float64
		switch {
		case controllers == "":
			q = smallest(root, []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, group, quotaV2)
		case slices.Contains(strings.Split(controllers, ","), "cpu"):
			q = smallest(root, []string{"sys/fs/cgroup/" + controllers, "sys/fs/cgroup/cpu"}, group, quotaV1)
		}
		if q > 0 && (limit == 0 || q < limit) {
			limit = q
		}
	}
	return limit
}

// smallest returns the smallest limit of the folders from the group up to each mount. In a container the
// group's path may not exist below the mount; then the mount itself is the container's group.
func smallest(root fs.FS, mounts []string, group string, read func(fs.FS, string) float64) float64 {
	limit := 0.0
	for _, mount := range mounts {
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			if q := read(root, path.Join(mount, dir)); q > 0 && (limit == 0 || q < limit) {
				limit = q
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// quotaV2 parses "max 100000" or "150000 100000": time in a period, both in microseconds.
func quotaV2(root fs.FS, dir string) float64 {
	text, err := fs.ReadFile(root, path.Join(dir, "cpu.max"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0
	}
	return ratio(fields[0], fields[1])
}

func quotaV1(root fs.FS, dir string) float64 {
	time, err1 := fs.ReadFile(root, path.Join(dir, "cpu.cfs_quota_us"))
	period, err2 := fs.ReadFile(root, path.Join(dir, "cpu.cfs_period_us"))
	if err1 != nil || err2 != nil {
		return 0
	}
	return ratio(strings.TrimSpace(string(time)), strings.TrimSpace(string(period)))
}

// ratio returns 0 if either is not a number above zero: the kernel writes "max" or -1 for no limit.
func ratio(time, period string) float64 {
	t, err1 := strconv.ParseInt(time, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || t <= 0 || p <= 0 {
		return 0
	}
	return float64(t) / float64(p)
}
