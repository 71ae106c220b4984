package chaostest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrImpossible is of a plan whose fault cannot be brought about here, for want of rights.
var ErrImpossible = errors.New("not possible here")

// limit wraps the command where it is to have little of something. release is called when the job is over.
func (j *job) limit() (release func(), err error) {
	release = func() {}
	switch j.plan.Fault {
	case FewDescriptors:
		j.wrap(fmt.Sprintf("ulimit -n %d", j.plan.Limit))
	case FewProcesses:
		j.wrap(fmt.Sprintf("ulimit -u %d", j.plan.Limit))
		if os.Geteuid() == 0 {
			// The limit is the user's, and none is root's. Nobody else has this number.
			id := uint32(1<<20 + j.plan.Seed%(1<<20))
			j.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
		}
	case SmallDisk:
		return release, j.smallDisk()
	case SmallGroup:
		group, err := newMemoryGroup(fmt.Sprintf("weft-chaos-%d-%d", os.Getpid(), j.plan.Seed), groupMemory)
		if err != nil {
			return nil, err
		}
		j.group = group
		j.wrap(fmt.Sprintf("echo $$ >%s/cgroup.procs", group))
		return func() { removeGroup(group) }, nil
	}
	return release, nil
}

// wrap has a shell do something before it becomes the command.
func (j *job) wrap(script string) {
	path := j.cmd.Path
	j.cmd.Path = "/bin/bash"
	j.cmd.Args = append([]string{"bash", "-c", script + ` && exec "$0" "$@"`, path}, j.cmd.Args[1:]...)
}

// smallDisk has the command write its output to a file on a small disk of memory, which is mounted where no
// other process sees it and goes with the command.
func (j *job) smallDisk() error {
	disk := filepath.Join(j.dir, "disk")
	if err := os.Mkdir(disk, 0o777); err != nil {
		return err
	}
	own := namespaceOfMounts()
	mount := fmt.Sprintf("mount -t tmpfs -o size=%dk weft-chaos %s", j.plan.Limit, disk)
	try := exec.Command("/bin/bash", "-c", mount)
	try.SysProcAttr = own
	if out, err := try.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: a disk of its own: %w %s", ErrImpossible, err, out)
	}
	j.cmd.SysProcAttr = own
	j.wrap(fmt.Sprintf("%s && exec >%s/out", mount, disk))
	return nil
}

// groupMemory is enough for the ranks of any plan.
const groupMemory = memoryFactor * 512 << 20

// newMemoryGroup makes a control group within this process's own, whose processes have so much memory.
func newMemoryGroup(name string, bytes int64) (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("%w: control groups: %w", ErrImpossible, err)
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		parent, limit := filepath.Join("/sys/fs/cgroup", parts[2]), "memory.max"
		if parts[1] == "memory" {
			parent, limit = filepath.Join("/sys/fs/cgroup/memory", parts[2]), "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		group := filepath.Join(parent, name)
		if err = os.Mkdir(group, 0o777); err != nil {
			continue
		}
		if err = os.WriteFile(filepath.Join(group, limit), fmt.Append(nil, bytes), 0); err == nil {
			os.WriteFile(filepath.Join(group, "memory.swap.max"), []byte("0"), 0)
			return group, nil
		}
		os.Remove(group)
	}
	return "", fmt.Errorf("%w: a control group for memory: %w", ErrImpossible, err)
}

// killedForMemory is how many processes of a control group the kernel has killed for want of memory.
func killedForMemory(group string) (n int) {
	if group == "" {
		return 0
	}
	for _, name := range []string{"memory.events", "memory.oom_control"} { // versions 2 and 1
		text, _ := os.ReadFile(filepath.Join(group, name))
		for line := range strings.Lines(string(text)) {
			if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
				n, _ = strconv.Atoi(strings.TrimSpace(count))
			}
		}
	}
	return n
}

// removeGroup removes a control group when its last process has gone.
func removeGroup(group string) {
	for end := time.Now().Add(endsWithin); ; time.Sleep(5 * time.Millisecond) {
		if err := os.Remove(group); err == nil || time.Now().After(end) {
			return
		}
	}
}
