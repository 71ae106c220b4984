package program

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Goroutine is a goroutine in a dump of all goroutines.
type Goroutine struct {
	ID       uint64
	State    string
	Site     string // the innermost line of the program in its stack
	Function string // the function of Site
	Owner    Owner
	Caller   Owner  // owner of the innermost function outside the runtime and the standard library
	Parent   uint64 // the goroutine that started it; 0 if unknown
	Began    string // the line of the program that started it; empty if none did
	Call     string // the function of package mpi that the program has called; empty if it is in none
	Durable  bool   // it is durably blocked (testing/synctest)
	Bubble   string // the number of its bubble of testing/synctest; empty if it is in none
}

// Owner is the code that started a goroutine, or that has a function in its stack.
type Owner uint8

const (
	OfRuntime Owner = iota // only the runtime: it calls nothing
	OfLibrary              // the standard library, which may call the program
	OfItself               // weft, which calls the program only on behalf of a waiting call
	OfProgram              // the program
)

// ownerOf returns the owner of a function.
func ownerOf(function string) Owner {
	switch {
	case Owns(function):
		return OfProgram
	case OfWeft(function):
		return OfItself
	case strings.HasPrefix(function, "runtime.") || strings.HasPrefix(function, "internal/runtime/"):
		return OfRuntime
	}
	return OfLibrary
}

// ParseGoroutines parses a trace of all goroutines in the format of runtime.Stack. It skips what it does not
// recognize.
func ParseGoroutines(trace string) []Goroutine {
	var list []Goroutine
	for block := range strings.SplitSeq(trace, "\n\n") {
		lines := strings.Split(block, "\n")
		head, state, found := strings.Cut(strings.TrimPrefix(lines[0], "goroutine "), " [")
		id, err := strconv.ParseUint(head, 10, 64)
		if !found || err != nil {
			continue
		}
		g := Goroutine{ID: id}
		g.State, state, _ = strings.Cut(strings.TrimSuffix(strings.TrimSuffix(state, ":"), "]"), ",")
		g.State, g.Durable = strings.CutSuffix(g.State, " (durable)")
		_, g.Bubble, _ = strings.Cut(state, " synctest bubble ")
		for i := 1; i+1 < len(lines); i++ {
			at, is := strings.CutPrefix(lines[i+1], "\t")
			if !is {
				continue // the mark for omitted frames
			}
			function, created := strings.CutPrefix(lines[i], "created by ")
			function, parent, _ := strings.Cut(function, " in goroutine ")
			if created {
				g.Parent, _ = strconv.ParseUint(parent, 10, 64)
			} else {
				function = withoutArguments(function)
			}
			if g.Function == "" {
				g.Function = function
			}
			o := ownerOf(function)
			at, _, _ = strings.Cut(at, " ")
			if g.Caller < OfItself && !created {
				g.Caller = o
			}
			if name, in := strings.CutPrefix(function, mpiPackage); in && g.Site == "" && !created {
				g.Call = bareName(name)
			}
			switch g.Owner = max(g.Owner, o); {
			case o != OfProgram:
			case created:
				g.Began = filepath.Base(at)
			case g.Site == "":
				g.Site = filepath.Base(at)
			}
			i++
		}
		list = append(list, g)
	}
	return list
}

// withoutArguments removes the arguments from a line that names a function.
func withoutArguments(line string) string {
	if at := strings.LastIndexByte(line, '('); at > 0 {
		return line[:at]
	}
	return line
}

// idle has the innermost functions of goroutines of the standard library that call no function of the
// program.
var idle = map[string]bool{
	"os/signal.signal_recv": true, // a signal comes from outside, and goes to a channel
}

// MayAct reports whether a goroutine that does not wait in a call of weft may act: it is not weft's own, and
// can go on without another goroutine of the program. A goroutine that waits on a channel or in a select may
// wait for time to pass, except on the channels of package testing, which belong to other tests.
func (g Goroutine) MayAct() bool {
	switch g.Owner {
	case OfRuntime, OfItself:
		return false
	case OfLibrary:
		if idle[g.Function] {
			return false
		}
	}
	switch g.State {
	case "semacquire", "chan send", "chan send (nil chan)", "chan receive (nil chan)", "select (no cases)":
		return false
	case "chan receive":
		return !strings.HasPrefix(g.Function, "testing.")
	}
	return !strings.HasPrefix(g.State, "sync.")
}

// The size of the buffer for the stacks of all goroutines, at first and at most.
const (
	minTrace = 64 << 10
	maxTrace = 4 << 20
)

// Goroutines returns the goroutines of this process. all reports whether none is omitted.
func Goroutines() (list []Goroutine, all bool) {
	var trace []byte
	size := 0
	for room := minTrace; size == len(trace) && room <= maxTrace; room *= 2 {
		trace = make([]byte, room)
		size = runtime.Stack(trace, true)
	}
	return ParseGoroutines(string(trace[:size])), size < len(trace)
}

// GoroutineID returns the number of the calling goroutine.
func GoroutineID() uint64 {
	number, _, _ := strings.Cut(strings.TrimPrefix(self(), "goroutine "), " ")
	id, _ := strconv.ParseUint(number, 10, 64)
	return id
}

// RunsTest reports whether the calling goroutine is that of the test whose *testing.T is at an address. If
// the trace does not show it, it returns true.
func RunsTest(t uintptr) bool {
	buf := make([]byte, minTrace)
	return runsTest(string(buf[:runtime.Stack(buf, false)]), t)
}

func runsTest(trace string, t uintptr) bool {
	const runner = "\ntesting.tRunner("
	at := strings.LastIndex(trace, runner)
	if at < 0 {
		return len(trace) == minTrace // the outermost frames may be missing
	}
	first, _, _ := strings.Cut(trace[at+len(runner):], ",")
	is, err := strconv.ParseUint(first, 0, 64)
	return err != nil || uintptr(is) == t
}

// Bubble returns the number of the calling goroutine's bubble of testing/synctest; empty if it is in none.
func Bubble() string {
	_, number, _ := strings.Cut(strings.TrimSuffix(self(), "]:"), " synctest bubble ")
	return number
}

// InBubble reports whether the calling goroutine is in a bubble of testing/synctest.
func InBubble() bool { return Bubble() != "" }

// self returns the first line of the calling goroutine's trace.
func self() string {
	var buf [256]byte
	head, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), "\n")
	return head
}
