package launchertest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// explain shows where a job that does not end stands. Shortly before the launcher's timeout ends the job, its
// ranks, which have the mark in their environment, print their goroutines. If the launcher does not end the
// job, explain prints the launcher's goroutines and ends the whole test. The caller calls over at the job's
// end.
func explain(timeout time.Duration, mark string) (over func()) {
	// a rank may take that long to write where it is, on a machine that does much else
	const telling = 2 * time.Second
	ask := time.AfterFunc(timeout-max(timeout/20, telling), func() {
		for _, c := range sys.ChildrenOf(os.Getpid()) {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.PID))
			if slices.Contains(strings.Split(string(environ), "\x00"), mark) {
				syscall.Kill(c.PID, syscall.SIGQUIT)
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

// standing returns where this process's goroutines of the launcher are, and where its children are.
func standing() string {
	var text strings.Builder
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("/launcher.")) {
			fmt.Fprintf(&text, "%s\n\n", stack)
		}
	}
	for _, c := range sys.ChildrenOf(os.Getpid()) {
		fmt.Fprintln(&text, describe(c))
	}
	return text.String()
}

// describe returns what a process does.
func describe(p sys.ProcessStat) string {
	where, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.PID)) // in the kernel
	return fmt.Sprintf("child %d (%s) is in state %s, at %s", p.PID, p.Name, p.State, where)
}
