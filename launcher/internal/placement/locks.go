package placement

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// Locks are the CPUs that a job has locked for itself, so that two weft jobs of a user on one machine do not
// bind their ranks to the same core. A lock is a listening socket in Linux's abstract namespace of Unix
// sockets, with the user and the CPU in its name. The kernel gives the name to one process, and frees it when
// that process has ended, for whatever reason. Nothing is ever sent to it.
//
// Any user can take any name, so a name of this user that another user holds is not a lock: the kernel
// reports which user listens. Locks of other users are only a hint which cores to take last.
//
// Jobs in different network namespaces do not see each other's locks. Programs other than weft ignore them.
type Locks struct {
	prefix string // of all users' names
	user   int
	held   map[int]net.Listener // by processor
}

const lockPrefix = "@weft-core-"

// NewLocks returns the locks of a job that has none yet.
func NewLocks() *Locks { return newLocks(lockPrefix) }

// Place decides where the ranks and their completion handlers run, and locks the processors that they have
// exclusively. It releases the processors of an earlier placement.
func (l *Locks) Place(in Request) (Placement, error) {
	in.taken, in.avoid = make(map[int]bool), l.ofOthers()
	for {
		chosen, err := place(in)
		if err != nil {
			return chosen, err
		}
		known := len(in.taken)
		for _, cpu := range l.hold(chosen.locked) {
			in.taken[cpu] = true
		}
		if len(in.taken) == known {
			return chosen, nil
		}
	}
}

func newLocks(prefix string) *Locks {
	return &Locks{prefix, os.Geteuid(), make(map[int]net.Listener)}
}

func (l *Locks) name(cpu int) string { return fmt.Sprintf("%s%d-%d", l.prefix, l.user, cpu) }

// hold locks processors, keeps existing locks on them, and releases all others. It returns the processors
// that another job of this user has locked.
func (l *Locks) hold(cpus []int) (taken []int) {
	wanted := make(map[int]bool)
	for _, cpu := range cpus {
		wanted[cpu] = true
	}
	for cpu, listener := range l.held {
		if !wanted[cpu] {
			listener.Close()
			delete(l.held, cpu)
		}
	}
	if runtime.GOOS != "linux" {
		return nil
	}
	for cpu := range wanted {
		if l.held[cpu] != nil {
			continue
		}
		listener, err := net.Listen("unix", l.name(cpu))
		switch {
		case err == nil:
			l.held[cpu] = listener
		case errors.Is(err, syscall.EADDRINUSE) && l.ownerOf(l.name(cpu)) == l.user:
			taken = append(taken, cpu)
		}
		// Any other obstacle to a lock, such as a sandbox or another user, does not prevent the job.
	}
	return taken
}

// Release releases all locks.
func (l *Locks) Release() { l.hold(nil) }

// unknownUser is the owner of a socket whose owner cannot be found.
const unknownUser = -1

// ownerOf returns the user who listens at a name.
func (l *Locks) ownerOf(name string) int {
	conn, err := net.DialTimeout("unix", name, time.Second)
	if err != nil {
		return unknownUser // released meanwhile, or with more callers in its queue than jobs of weft make
	}
	defer conn.Close()
	if _, uid, err := sys.PeerOf(conn.(*net.UnixConn)); err == nil {
		return uid
	}
	return unknownUser
}

// ofOthers returns the CPUs that jobs of other users claim to have locked.
func (l *Locks) ofOthers() map[int]bool {
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	return l.parseOthers(string(text))
}

// parseOthers finds other users' locks in the kernel's list of sockets, whose last column is the name.
func (l *Locks) parseOthers(list string) map[int]bool {
	out := make(map[int]bool)
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		rest, is := strings.CutPrefix(fields[len(fields)-1], l.prefix)
		user, cpu, both := strings.Cut(rest, "-")
		if !is || !both || user == strconv.Itoa(l.user) {
			continue
		}
		if n, err := strconv.ParseUint(cpu, 10, 16); err == nil {
			out[int(n)] = true
		}
	}
	return out
}
