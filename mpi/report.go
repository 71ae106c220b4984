package mpi

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// statsReport prints the counters of this rank at its end, whatever the end is: Finalize, a failure, Abort,
// or SIGTERM, by which launchers end a job that has failed or takes too long.
type statsReport struct {
	e     *engine.Engine
	calls *callStats
	once  sync.Once
	end   chan os.Signal
}

// reportWithin bounds the time for the counters of an engine that is in trouble.
const reportWithin = time.Second

// newStatsReport begins to wait for SIGTERM.
func newStatsReport(e *engine.Engine, calls *callStats) *statsReport {
	r := &statsReport{e: e, calls: calls, end: make(chan os.Signal, 1)}
	signal.Notify(r.end, syscall.SIGTERM)
	go func() {
		if _, ended := <-r.end; !ended {
			return
		}
		r.print()
		signal.Stop(r.end)
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			self.Signal(syscall.SIGTERM) // now with its usual effect
		}
	}()
	return r
}

// print prints the counters, once. A nil report prints nothing.
func (r *statsReport) print() {
	if r == nil {
		return
	}
	r.once.Do(func() {
		text := make(chan string, 1)
		go func() { text <- table(r.e.Rank(), statsOf(r.e.Stats())) + r.calls.line(r.e.Rank()) }()
		select {
		case t := <-text:
			fmt.Fprint(os.Stderr, t)
		case <-time.After(reportWithin):
			fmt.Fprintf(os.Stderr, "weft: rank %d: no counters within %v\n", r.e.Rank(), reportWithin)
		}
	})
}

// close ends the wait for SIGTERM.
func (r *statsReport) close() {
	if r != nil {
		signal.Stop(r.end)
		close(r.end)
	}
}
