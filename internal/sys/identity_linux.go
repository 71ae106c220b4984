package sys

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Identity names this process to others of its kernel: its PID namespace, its number there, and when it
// began, since numbers are used again. It is "" where /proc does not tell.
func Identity() string {
	begun, _, ok := processStat("/proc/self/stat")
	space, err := os.Readlink("/proc/self/ns/pid")
	if !ok || err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%s.%s", os.Getpid(), begun, space)
}

// Runs tells whether a process of this kernel is known to run: a thread of it has a processor or waits for
// one. That holds neither for a process that is stopped or sleeps, nor for one that cannot be seen from here.
func Runs(identity string) bool {
	number, rest, _ := strings.Cut(identity, ".")
	began, space, _ := strings.Cut(rest, ".")
	pid, err := strconv.ParseUint(number, 10, 31)
	if own, err2 := os.Readlink("/proc/self/ns/pid"); err != nil || err2 != nil || own != space {
		return false
	}
	folder := fmt.Sprintf("/proc/%d", pid)
	if now, _, ok := processStat(folder + "/stat"); !ok || now != began {
		return false
	}
	threads, err := os.ReadDir(folder + "/task")
	for _, t := range threads {
		if _, state, _ := processStat(folder + "/task/" + t.Name() + "/stat"); state == "R" {
			return err == nil
		}
	}
	return false
}

// processStat reads when a process or thread began, and its state.
func processStat(file string) (began, state string, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", false
	}
	// PID (NAME) STATE PARENT …, and a name may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const stateAt, beganAt = 0, 19
	if len(fields) <= beganAt {
		return "", "", false
	}
	return fields[beganAt], fields[stateAt], true
}
