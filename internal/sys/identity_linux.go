package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Identity names this process to others of its kernel: its PID namespace, its number there, and when it
// began, since numbers are used again. It is "" where /proc does not tell.
func Identity() string {
	self, ok := readStat("/proc/self/stat")
	space, err := os.Readlink("/proc/self/ns/pid")
	if !ok || err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%s.%s", os.Getpid(), self.Began, space)
}

// Watch observes whether a process of this kernel runs. Any goroutine may use it.
type Watch struct {
	folder, began string // "" for a process that cannot be seen from here

	mu     sync.Mutex
	looked time.Time
	wanted time.Duration // how long its threads have had a processor or waited for one, until then
	runs   bool          // found then
}

// NewWatch watches the process of an identity.
func NewWatch(identity string) *Watch {
	number, rest, _ := strings.Cut(identity, ".")
	began, space, _ := strings.Cut(rest, ".")
	pid, err := strconv.ParseUint(number, 10, 31)
	if own, err2 := os.Readlink("/proc/self/ns/pid"); err != nil || err2 != nil || own != space {
		return &Watch{}
	}
	return &Watch{folder: fmt.Sprintf("/proc/%d", pid), began: began}
}

// closeLooks is the time within which two looks at a process find the same.
const closeLooks = 20 * time.Millisecond

// Runs reports whether the process is known to run: a thread of it has a processor or waits for one, or its
// threads together did for most of the time since the last look. Neither holds for a process that is stopped
// or sleeps, nor for one that cannot be seen from here.
//
// The second is there because threads are looked at one after the other: those that hand a goroutine to each
// other may each be found asleep.
func (w *Watch) Runs() bool {
	if w.folder == "" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	since := now.Sub(w.looked)
	if since < closeLooks {
		return w.runs
	}
	ready, wanted, ok := lookAt(w.folder, w.began)
	w.runs = ok && (ready || !w.looked.IsZero() && wanted-w.wanted > since/2)
	w.looked, w.wanted = now, wanted
	return w.runs
}

// lookAt returns for a process that began at a time whether a thread has a processor or waits for one, and
// for how long all threads have until now. ok is false if it is another process, or has ended.
func lookAt(folder, began string) (ready bool, wanted time.Duration, ok bool) {
	if p, ok := readStat(folder + "/stat"); !ok || p.Began != began {
		return false, 0, false
	}
	threads, err := os.ReadDir(folder + "/task")
	for _, t := range threads {
		task := folder + "/task/" + t.Name()
		thread, _ := readStat(task + "/stat")
		ready = ready || thread.State == "R"
		var ran, waited time.Duration // in nanoseconds; not there on kernels without statistics
		if text, err := os.ReadFile(task + "/schedstat"); err == nil {
			fmt.Sscan(string(text), &ran, &waited)
		}
		wanted += ran + waited
	}
	return ready, wanted, err == nil
}
