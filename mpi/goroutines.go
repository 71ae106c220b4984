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
