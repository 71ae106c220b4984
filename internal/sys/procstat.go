package sys

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ProcessStat is the system's description of a process or a thread.
type ProcessStat struct {
	PID    int
	Name   string
	State  string // one letter, such as R, S, T or Z
	Parent int
	Began  string // tells it from others that have had its number
}

// Lives reports whether a process has not ended. One that only waits for its parent's notice has.
func (p ProcessStat) Lives() bool { return p.State != "" && p.State != "Z" && p.State != "X" }

// StatOf is the ProcessStat of a process, zero if there is none.
func StatOf(pid int) ProcessStat {
	p, _ := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	return p
}

// ChildrenOf lists the processes that have a parent.
func ChildrenOf(parent int) (list []ProcessStat) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		if p, ok := readStat(file); ok && p.Parent == parent {
			list = append(list, p)
		}
	}
	return list
}

// readStat reads a file of /proc: PID (NAME) STATE PARENT …, where a name may contain anything.
func readStat(file string) (p ProcessStat, ok bool) {
	text, err := os.ReadFile(file)
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || open < 0 || end < open {
		return p, false
	}
	const stateAt, parentAt, beganAt = 0, 1, 19
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) <= beganAt {
		return p, false
	}
	p = ProcessStat{Name: string(text[open+1 : end]), State: fields[stateAt], Began: fields[beganAt]}
	p.PID, _ = strconv.Atoi(strings.TrimSpace(string(text[:open])))
	p.Parent, _ = strconv.Atoi(fields[parentAt])
	return p, true
}
