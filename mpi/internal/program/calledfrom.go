package program

import (
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// CalledFrom finds in a stack the function of package mpi that the program has called, and the source line.
// Both are empty for a stack without functions of the program.
func CalledFrom(callers []uintptr) (call, site string) {
	frames := runtime.CallersFrames(callers)
	for {
		f, more := frames.Next()
		if Owns(f.Function) {
			return call, filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
		if name, in := strings.CutPrefix(f.Function, mpiPackage); in {
			call = bareName(name)
		}
		if !more {
			return "", ""
		}
	}
}

// mpiPackage is the prefix of the names of functions of package mpi.
const mpiPackage = Module + "mpi."

// bareName returns the name of a function without its receiver and its type parameters.
func bareName(name string) string {
	if from, to := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']'); from >= 0 && to > from {
		name = name[:from] + name[to+1:]
	}
	return name[strings.LastIndexByte(name, '.')+1:]
}
