package program

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// starters are the functions through which a function of the program can be called later although no
// goroutine shows it. Anything else that calls a function of the program later is a goroutine: of the
// program, or of the standard library on its behalf (a server, a command that is waited for, a signal).
var starters = map[string]bool{
	"time.AfterFunc":       true,
	"context.AfterFunc":    true,
	"runtime.SetFinalizer": true,
	"runtime.AddCleanup":   true,
	"plugin.Open":          true, // a loaded plugin may call each of them
}

// exported is the prefix of a function that C may call, in a thread without a goroutine.
const exported = "_cgoexp_"

// Later returns how a function of the program may be called later although no goroutine shows it, as the end
// of a sentence about the program; empty if none can. The runtime does not list timers, finalizers and
// cleanups, so Later searches the machine code for calls that could have made one. Anything unknown counts as
// possible.
var Later = sync.OnceValue(func() string {
	if _, known := modules(); !known {
		return "does not tell which modules it was built from"
	}
	code, data, err := image()
	if err != nil {
		return "cannot be searched for timers: " + err.Error()
	}
	return search(code, data)
})

var searched = sync.OnceValue(func() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		Later()
		close(done)
	}()
	return done
})

// Searched waits for at most within until Later's search is done, and reports whether it is. The first call
// starts the search, which may take longer, in a separate goroutine.
func Searched(within time.Duration) bool {
	select {
	case <-searched():
		return true
	case <-time.After(within):
		return false
	}
}

// segment is a part of the executable in memory.
type segment struct {
	at   uintptr
	data []byte
}

// function is a function of the program's machine code, with the functions inlined into it.
type function struct {
	code  segment
	owned bool
}

// search finds a call of a starter from a function of the program, or a starter that is used as a value,
// which any code may call.
func search(code, data []segment) string {
	var functions []function
	entries := map[uintptr]string{} // entry points of the starters
	weft, called := false, ""
	for _, s := range code {
		eachFunction(s, func(f function, name string) {
			functions = append(functions, f)
			if starters[generic(name)] {
				entries[f.code.at] = generic(name)
			}
			if c, is := strings.CutPrefix(name, exported); is {
				called = c
			}
			weft = weft || name == Module+"mpi/internal/program.search"
		})
	}
	if !weft {
		return "has functions of unknown names"
	}
	if called != "" {
		return "has a function that C may call, " + called
	}
	for _, f := range functions {
		if text := f.startsLater(entries); text != "" {
			return text
		}
	}
	low, high := ^uintptr(0), uintptr(0) // a map look-up takes longer
	for at := range entries {
		low, high = min(low, at), max(high, at)
	}
	for _, s := range data {
		for at := 0; at+8 <= len(s.data); at += 8 {
			word := uintptr(binary.LittleEndian.Uint64(s.data[at:]))
			if word < low || word > high {
				continue
			}
			if name := entries[word]; name != "" {
				return "uses " + name + " as a value"
			}
		}
	}
	return ""
}

// eachFunction calls each for the functions in a segment of code, with their names.
func eachFunction(s segment, each func(f function, name string)) {
	size := uintptr(len(s.data))
	for at := uintptr(0); at < size; at += minFunction {
		f := runtime.FuncForPC(s.at + at)
		if f == nil {
			continue
		}
		entry := f.Entry()
		inside := func(at uintptr) bool {
			if at >= size {
				return false
			}
			f := runtime.FuncForPC(s.at + at)
			return f != nil && f.Entry() == entry
		}
		// The runtime finds the function of an address, in a time that grows with the function's length. So
		// search for its end in steps that double, and then halve.
		step := uintptr(minFunction)
		for ; inside(at + step); step *= 2 {
			at += step
		}
		for step > minFunction {
			if step /= 2; inside(at + step) {
				at += step
			}
		}
		// The name at the entry is the function's own: inlined functions follow it.
		if name := runtime.FuncForPC(entry).Name(); name != "" {
			code := segment{entry, s.data[entry-s.at : min(at+minFunction, size)]}
			each(function{code, owned(name)}, name)
		}
	}
}

// startsLater returns the starter that the program calls in a function, directly or inlined.
func (f *function) startsLater(entries map[uintptr]string) (text string) {
	calls(f.code, func(returns, callee uintptr) bool {
		starter := entries[callee]
		if starter == "" && !f.owned {
			return true
		}
		frames := runtime.CallersFrames([]uintptr{returns})
		for more := true; more && text == ""; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if starter != "" && owned(frame.Function) {
				text = fmt.Sprintf("calls %s at %s:%d", starter, filepath.Base(frame.File), frame.Line)
			}
			if starter = generic(frame.Function); !starters[starter] {
				starter = ""
			}
		}
		return text == ""
	})
	return text
}

// owned reports whether a function is the program's. The functions that weft's launcher starts later call
// nothing of a rank.
func owned(function string) bool {
	return Owns(function) && !strings.HasPrefix(function, Module+"launcher")
}

// generic returns a function's name without type arguments.
func generic(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name
}
