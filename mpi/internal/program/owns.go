// Package program examines the program that this process runs: which functions are its own, not weft's or the
// standard library's, and whether some of them may be called later although no goroutine shows that.
package program

import (
	"runtime/debug"
	"strings"
	"sync"
)

// Module is weft's import path. The packages in internals are weft's own code inside a rank.
const Module = "github.com/weft-mpi/weft/"

var internals = []string{"mpi", "channel", "eager", "rendezvous", "transport", "internal"}

// OfWeft reports whether a function, given by its full name, belongs to weft's own code inside a rank. The
// tests of a package that see it from outside do not.
func OfWeft(function string) bool {
	rest, in := strings.CutPrefix(function, Module)
	if !in || strings.HasSuffix(packageOf(function), "_test") {
		return false
	}
	for _, p := range internals {
		if tail, in := strings.CutPrefix(rest, p); in && strings.IndexAny(tail+"/", "./") == 0 {
			return true
		}
	}
	return false
}

// Owns reports whether a function, given by its full name, is the program's: neither weft's own nor the
// standard library's. The first element of a standard library path has no dot, and the program's may have
// none, too.
func Owns(function string) bool {
	if OfWeft(function) {
		return false
	}
	path := packageOf(function)
	first, _, _ := strings.Cut(path, "/")
	if strings.Contains(first, ".") || first == "main" || first == "command-line-arguments" {
		return true
	}
	paths, _ := modules()
	return inModules(path, paths)
}

// packageOf returns the path of a function's package. The dots of its last element are escaped in function
// names.
func packageOf(function string) string {
	name, _, _ := strings.Cut(function, "[")
	slash := strings.LastIndexByte(name, '/') + 1
	last, _, _ := strings.Cut(name[slash:], ".")
	return strings.ReplaceAll(name[:slash]+last, "%2e", ".")
}

func inModules(path string, modules []string) bool {
	path = strings.TrimSuffix(path, "_test")
	for _, m := range modules {
		if rest, in := strings.CutPrefix(path, m); in && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// modules returns the paths of the program's modules. It reports false if the program does not list them.
var modules = sync.OnceValues(func() (paths []string, known bool) {
	info, known := debug.ReadBuildInfo()
	if !known {
		return nil, false
	}
	if info.Main.Path != "" {
		paths = append(paths, info.Main.Path)
	}
	for _, m := range info.Deps {
		paths = append(paths, m.Path)
	}
	return paths, len(paths) > 0
})
