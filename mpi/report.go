package mpi

import (
	"fmt"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// reportWithin bounds the time for the counters of an engine that is in trouble.
const reportWithin = time.Second

// printStatistics prints the counters of this rank.
func printStatistics(e *engine.Engine, calls *callStats) {
	text := make(chan string, 1)
	go func() { text <- table(e.Rank(), statsOf(e.Stats())) + calls.line(e.Rank()) }()
	select {
	case t := <-text:
		fmt.Fprint(os.Stderr, t)
	case <-time.After(reportWithin):
		fmt.Fprintf(os.Stderr, "weft: rank %d: no counters within %v\n", e.Rank(), reportWithin)
	}
}
