package mpi

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// module is where weft's packages are; those below a program's view of it are its internals.
const module = "github.com/weft-mpi/weft/"

var internals = []string{"mpi", "channel", "eager", "rendezvous", "transport", "internal", "launcher/pmi"}

// ofProgram tells whether a function, given by its full name, is the program's: neither weft's own nor of the
// standard library.
func ofProgram(function string) bool {
	if rest, in := strings.CutPrefix(function, module); in {
		for _, p := range internals {
			if tail, in := strings.CutPrefix(rest, p); in && strings.IndexAny(tail+"/", "./") == 0 {
				return false
			}
		}
		return true
	}
	first, _, _ := strings.Cut(function, "/")
	if !strings.Contains(function, "/") {
		return strings.HasPrefix(function, "main.")
	}
	return strings.Contains(first, ".") || first == "main" || first == "command-line-arguments"
}

// calledFrom finds in a stack which function of this package the program has called, and where. Both are
// empty for a stack without functions of the program.
func calledFrom(callers []uintptr) (call, site string) {
	frames := runtime.CallersFrames(callers)
	for {
		f, more := frames.Next()
		if ofProgram(f.Function) {
			return call, filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
		if name, in := strings.CutPrefix(f.Function, module+"mpi."); in {
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
	id    uint64
	state string
	site  string // the innermost line of the program in its stack
	ours  bool   // it runs a function of the program, or was started by one
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
		for i := 1; i+1 < len(lines); i += 2 {
			function, created := strings.CutPrefix(lines[i], "created by ")
			function, _, _ = strings.Cut(function, " in goroutine ")
			if !created {
				function = withoutArguments(function)
			}
			if !ofProgram(function) {
				continue
			}
			g.ours = true
			if !created && g.site == "" {
				at, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " ")
				g.site = filepath.Base(at)
			}
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

// passive tells whether a goroutine can go on only if another goroutine of the program acts. What waits on a
// channel or in a select may wait for time to pass.
func (g goroutine) passive() bool {
	switch g.state {
	case "semacquire", "chan send", "chan send (nil chan)", "chan receive (nil chan)", "select (no cases)":
		return true
	}
	return strings.HasPrefix(g.state, "sync.")
}
