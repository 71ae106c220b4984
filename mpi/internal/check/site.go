package check

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Site is a call in the program.
type Site struct {
	Call string // the function of package mpi
	Line string // file:line in the program

	header atomic.Pointer[header] // of its latest message
}

// String describes the call for a report.
func (s *Site) String() string { return s.Call + " at " + s.Line }

const (
	depth     = 8    // return addresses that identify a call: package mpi nests less deep
	fastSites = 256  // calls found without a lock
	maxSites  = 4096 // calls remembered
)

// Sites finds the current call of the program, and caches it.
type Sites struct {
	resolve func(callers []uintptr) (call, line string)
	fast    [fastSites]atomic.Pointer[knownSite]
	mu      sync.Mutex
	all     map[[depth]uintptr]*knownSite
}

type knownSite struct {
	pcs  [depth]uintptr
	site Site
}

// NewSites returns Sites that use resolve to find a call in a stack of runtime.Callers.
func NewSites(resolve func(callers []uintptr) (call, line string)) *Sites {
	return &Sites{resolve: resolve, all: map[[depth]uintptr]*knownSite{}}
}

// Here returns the current call of the program.
//
//go:noinline
func (s *Sites) Here() *Site {
	var pcs [depth]uintptr
	stack(&pcs)
	h := uintptr(0)
	for _, pc := range pcs {
		h = (h ^ pc) * 0x9E3779B1
	}
	slot := &s.fast[h>>8%fastSites]
	if k := slot.Load(); k != nil && k.pcs == pcs {
		return &k.site
	}
	k := s.find(pcs)
	slot.Store(k)
	return &k.site
}

func (s *Sites) find(pcs [depth]uintptr) *knownSite {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.all[pcs]; k != nil {
		return k
	}
	callers := make([]uintptr, 64)
	k := &knownSite{pcs: pcs}
	k.site.Call, k.site.Line = s.resolve(callers[:runtime.Callers(3, callers)])
	if k.site.Line == "" {
		k.site.Line = "an unknown line"
	}
	if len(s.all) == maxSites {
		clear(s.all)
	}
	s.all[pcs] = k
	return k
}
