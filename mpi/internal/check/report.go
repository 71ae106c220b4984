package check

import (
	"fmt"
	"io"
	"sync"
)

// maxReports is the maximum number of reports of a rank.
const maxReports = 100

// Reporter prints the mistakes of one rank, each once, and counts them.
type Reporter struct {
	rank int
	out  io.Writer
	mu   sync.Mutex
	seen map[string]bool
}

// NewReporter returns the reporter of a rank.
func NewReporter(rank int, out io.Writer) *Reporter {
	return &Reporter{rank: rank, out: out, seen: map[string]bool{}}
}

// Report prints a mistake: its class, and a description.
func (r *Reporter) Report(class, found string) {
	line := fmt.Sprintf("weft: check: rank %d: %s: %s\n", r.rank, class, found)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[line] || len(r.seen) > maxReports {
		return
	}
	r.seen[line] = true
	if len(r.seen) > maxReports {
		line = fmt.Sprintf("weft: check: rank %d: more than %d mistakes; the rest is not told\n", r.rank,
			maxReports)
	}
	io.WriteString(r.out, line)
}

// Count returns the number of mistakes found.
func (r *Reporter) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}
