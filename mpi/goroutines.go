package mpi

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/mpi/internal/program"
)

// calledFrom finds in a stack which function of this package the program has called, and where. Both are
// empty for a stack without functions of the program.
func calledFrom(callers []uintptr) (call, site string) {
	frames := runtime.CallersFrames(callers)
	for {
		f, more := frames.Next()
		if program.Owns(f.Function) {
			return call, filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
		if name, in := strings.CutPrefix(f.Function, program.Module+"mpi."); in {
			call = bareName(name)
		}
		if !more {
			return "", ""
		}
	}
}

// bareName is the name of a function without its receiver and its type parameters.
func bareName(name string) string {
	if from, to := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']'); from >= 0 && to > from {
		name = name[:from] + name[to+1:]
	}
	return name[strings.LastIndexByte(name, '.')+1:]
}

// goroutine is one goroutine of a trace of all.
type goroutine struct {
	id       uint64
	state    string
	site     string // the innermost line of the program in its stack
	function string // the innermost one
	owner    owner
}

// owner is who started a goroutine, or has a function in its stack.
type owner uint8

const (
	ofRuntime owner = iota // nobody else: it calls nothing
	ofLibrary              // the standard library, which may call the program
	ofWeft                 // weft, which calls the program only in place of what waits
	ofProgram              // the program
)

// ownerOf is whom a function belongs to.
func ownerOf(function string) owner {
	switch {
	case program.Owns(function):
		return ofProgram
	case program.OfWeft(function):
		return ofWeft
	case strings.HasPrefix(function, "runtime.") || strings.HasPrefix(function, "internal/runtime/"):
		return ofRuntime
	}
	return ofLibrary
}

// parseGoroutines reads a trace of all goroutines, as runtime.Stack writes it. What it does not understand it
// leaves out.
func parseGoroutines(trace string) []goroutine {
	var list []goroutine
	for block := range strings.SplitSeq(trace, "\n\n") {
		lines := strings.Split(block, "\n")
		head, state, found := strings.Cut(strings.TrimPrefix(lines[0], "goroutine "), " [")
		id, err := strconv.ParseUint(head, 10, 64)
		if !found || err != nil {
			continue
		}
		g := goroutine{id: id}
		g.state, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimSuffix(state, ":"), "]"), ",")
		for i := 1; i+1 < len(lines); i++ {
			at, is := strings.CutPrefix(lines[i+1], "\t")
			if !is {
				continue // what tells of frames that are left out
			}
			function, created := strings.CutPrefix(lines[i], "created by ")
			function, _, _ = strings.Cut(function, " in goroutine ")
			if !created {
				function = withoutArguments(function)
			}
			if g.function == "" {
				g.function = function
			}
			o := ownerOf(function)
			if g.owner = max(g.owner, o); o == ofProgram && !created && g.site == "" {
				at, _, _ = strings.Cut(at, " ")
				g.site = filepath.Base(at)
			}
			i++
		}
		list = append(list, g)
	}
	return list
}

// withoutArguments cuts the arguments from a line that names a function.
func withoutArguments(line string) string {
	if at := strings.LastIndexByte(line, '('); at > 0 {
		return line[:at]
	}
	return line
}

// idle are goroutines of the standard library that call no function of the program, by their innermost
// function.
var idle = map[string]bool{
	"os/signal.signal_recv": true, // a signal comes from outside, and goes to a channel
}

// mayAct tells whether a goroutine that does not wait in a call of weft may act: it is not one of weft's, and
// can go on without another goroutine of the program. What waits on a channel or in a select may wait for
// time to pass; but the channels of package testing are those of other tests.
func (g goroutine) mayAct() bool {
	switch g.owner {
	case ofRuntime, ofWeft:
		return false
	case ofLibrary:
		if idle[g.function] {
			return false
		}
	}
	switch g.state {
	case "semacquire", "chan send", "chan send (nil chan)", "chan receive (nil chan)", "select (no cases)":
		return false
	case "chan receive":
		return !strings.HasPrefix(g.function, "testing.")
	}
	return !strings.HasPrefix(g.state, "sync.")
}
