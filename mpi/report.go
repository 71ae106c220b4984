package mpi

import (
	"fmt"
	"io"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// reportWithin bounds the time for the counters of an engine that is in trouble.
const reportWithin = time.Second

// statistics prints the counters of a rank.
type statistics struct {
	e       *engine.Engine
	out     io.Writer
	calls   *callStats
	printed string // the latest, which are not repeated
}

func (s *statistics) print() {
	e, calls := s.e, s.calls
	text := make(chan string, 1)
	go func() { text <- table(e.Rank(), statsOf(e.Stats())) + calls.line(e.Rank()) }()
	select {
	case t := <-text:
		if t != s.printed {
			fmt.Fprint(s.out, t)
		}
		s.printed = t
	case <-time.After(reportWithin):
		fmt.Fprintf(s.out, "weft: rank %d: no counters within %v\n", e.Rank(), reportWithin)
	}
}
