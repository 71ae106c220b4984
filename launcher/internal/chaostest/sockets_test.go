package chaostest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// noteSockets leaves the abstract names of this process's sockets. A name goes with its socket: one that is
// there after the job shows that somebody still holds a rank's socket, be it a process that nobody found, or
// a message on its way.
func (v *victim) noteSockets() {
	own := make(map[string]bool)
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil {
			own[to] = true
		}
	}
	var names []string
	for _, s := range abstractSockets() {
		if own["socket:["+s.inode+"]"] {
			names = append(names, s.name)
		}
	}
	file := filepath.Join(v.notes, fmt.Sprintf("sockets.%d", v.rank))
	if err := os.WriteFile(file, []byte(strings.Join(names, "\n")), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: note:", err)
	}
}

// leftSockets are the names that are still there of those that ranks have noted.
func (j *job) leftSockets() (left []string) {
	files, _ := filepath.Glob(filepath.Join(j.notes, "sockets.*"))
	if len(files) == 0 {
		return nil
	}
	now := abstractSockets()
	for _, file := range files {
		names, _ := os.ReadFile(file)
		for _, name := range strings.Fields(string(names)) {
			if slices.ContainsFunc(now, func(s abstractSocket) bool { return s.name == name }) {
				left = append(left, "the socket "+name+" is left")
			}
		}
	}
	return left
}

type abstractSocket struct{ inode, name string }

var abstractName = regexp.MustCompile(`(?m)\s(\d+) (@\S+)$`)

// abstractSockets are those that have an abstract name.
func abstractSockets() (list []abstractSocket) {
	text, _ := os.ReadFile("/proc/net/unix")
	for _, m := range abstractName.FindAllStringSubmatch(string(text), -1) {
		list = append(list, abstractSocket{m[1], m[2]})
	}
	return list
}
