package check

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Operation is an operation in flight: its request has not been waited for.
type Operation struct {
	Site *Site
	With string // "to rank 1, tag 5, on world"
	// memory that it reads, which the program must not change, and memory that it writes, which the program
	// must not access
	Reads, Writes [][]byte

	sum   uint64 // of Reads
	index int    // in Operations.list, plus one; 0 while it is not there
}

// String describes the operation for a report.
func (o *Operation) String() string {
	if o.With == "" {
		return o.Site.String()
	}
	return fmt.Sprintf("%s %s at %s", o.Site.Call, o.With, o.Site.Line)
}

// Operations are the operations of a rank in flight.
type Operations struct {
	reporter *Reporter
	seed     maphash.Seed
	count    atomic.Int32
	mu       sync.Mutex
	list     []*Operation
}

// NewOperations returns Operations that report mistakes to r.
func NewOperations(r *Reporter) *Operations {
	return &Operations{reporter: r, seed: maphash.MakeSeed()}
}

// maxRegions bounds the comparison of two operations: overlaps of more pieces are not found.
const maxRegions = 256

// Look reports the operations in flight that conflict with a call: one of the two writes memory that the
// other uses. It also checks the call itself.
func (s *Operations) Look(o *Operation) {
	if len(o.Reads) > 0 && len(o.Writes) > 0 && o.meets(o) {
		s.reporter.Report("overlapping buffers", fmt.Sprintf("input and output of %v overlap", o))
	}
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.list {
		if o.meets(other) || other.meets(o) {
			s.reporter.Report("overlapping buffers", fmt.Sprintf("%v uses memory of %v, which has not been "+
				"waited for", o, other))
		}
	}
}

// Any reports whether operations are in flight.
func (s *Operations) Any() bool { return s.count.Load() > 0 }

// Begin adds an operation in flight.
func (s *Operations) Begin(o *Operation) {
	s.Look(o)
	o.sum = s.sumOf(o.Reads)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, o)
	o.index = len(s.list)
	s.count.Add(1)
}

// End removes an operation that has been waited for, and checks that the memory it read is unchanged.
func (s *Operations) End(o *Operation) {
	if !s.remove(o) || s.sumOf(o.Reads) == o.sum {
		return
	}
	s.reporter.Report("buffer changed", fmt.Sprintf("the buffer of %v was changed before the request was "+
		"waited for", o))
}

func (s *Operations) remove(o *Operation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.index == 0 {
		return false
	}
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[o.index-1], moved.index = moved, o.index
	s.list[last] = nil
	s.list, o.index = s.list[:last], 0
	s.count.Add(-1)
	return true
}

// Drop removes an operation without a request.
func (s *Operations) Drop(o *Operation) { s.remove(o) }

// ReportLeft reports the operations that were never waited for.
func (s *Operations) ReportLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.list {
		s.reporter.Report("request never waited for", o.String())
	}
}

func (s *Operations) sumOf(list [][]byte) (sum uint64) {
	for _, b := range list {
		sum = sum*31 + maphash.Bytes(s.seed, b)
	}
	return sum
}

// meets reports whether an operation writes memory that another one uses. For the same operation, it compares
// writes with reads.
func (o *Operation) meets(other *Operation) bool {
	if len(o.Writes)*(len(other.Writes)+len(other.Reads)) > maxRegions {
		return false
	}
	for _, w := range o.Writes {
		for _, b := range other.Reads {
			if Overlap(w, b) {
				return true
			}
		}
		if o == other {
			continue
		}
		for _, b := range other.Writes {
			if Overlap(w, b) {
				return true
			}
		}
	}
	return false
}

// Overlap reports whether two pieces of memory have bytes in common.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	p, q := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return p < q+uintptr(len(b)) && q < p+uintptr(len(a))
}
