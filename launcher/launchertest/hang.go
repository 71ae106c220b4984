package launchertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// explain shows where a job that does not end stands. Shortly before the launcher's timeout ends the job, its
// ranks, which have the mark in their environment, print their goroutines. If the launcher does not end the
// job, explain prints the launcher's goroutines and ends the whole test. The caller calls over at the job's
// end.
func explain(timeout time.Duration, mark string) (over func()) {
	// a rank may take that long to write where it is, on a machine that does much else
	const telling = 2 * time.Second
	ask := time.AfterFunc(timeout-max(timeout/20, telling), func() {
		for _, c := range children() {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.pid))
			if slices.Contains(strings.Split(string(environ), "\x00"), mark) {
				syscall.Kill(c.pid, syscall.SIGQUIT)
			}
		}
	})
	late := timeout + time.Minute // far more than the launcher takes to kill what does not end
	give := time.AfterFunc(late, func() {
		fmt.Fprintf(os.Stderr, "\nlaunchertest: the job has not ended, nor was it ended, within %s\n%s",
			late, standing())
		os.Exit(1)
	})
	return func() {
		ask.Stop()
		give.Stop()
	}
}

// standing is where this process's goroutines stand that have to do with the launcher, and where its children
// do.
func standing() string {
	var text strings.Builder
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("/launcher.")) {
			fmt.Fprintf(&text, "%s\n\n", stack)
		}
	}
	for _, c := range children() {
		fmt.Fprintln(&text, c)
	}
	return text.String()
}

// child is a process that this one has started.
type child struct {
	pid         int
	name, state string
	where       string // in the kernel
}

func (c child) String() string {
	return fmt.Sprintf("child %d (%s) is in state %s, at %s", c.pid, c.name, c.state, c.where)
}

func children() (list []child) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// PID (NAME) STATE PARENT …, and a name may hold anything.
		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if open < 0 || end < open {
			continue
		}
		fields := strings.Fields(string(b[end+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		dir := filepath.Dir(file)
		pid, _ := strconv.Atoi(filepath.Base(dir))
		where, _ := os.ReadFile(filepath.Join(dir, "wchan"))
		list = append(list, child{pid: pid, name: string(b[open+1 : end]), state: fields[0],
			where: string(where)})
	}
	return list
}
