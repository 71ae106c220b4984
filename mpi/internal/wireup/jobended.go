package wireup

import (
	"errors"
	"net"

	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// Reporter is a connection as that of package snapshot, over which this rank tells rank 0 its state; nil
// where there is a launcher, or nobody wants to know.
func (j *Job) Reporter() net.Conn {
	if r, ok := j.way.(rank0); ok && r.Watched() {
		return r.Client.Reporter()
	}
	return nil
}

// UnderPMI reports whether a launcher has started this rank, weft's or another.
func (j *Job) UnderPMI() bool {
	_, ok := j.way.(launcher)
	return ok
}

// WhenEnded has one of two functions called, from a goroutine of its own, when the job fails elsewhere: a
// rank is lost, or another rank has ended the job with a status. A launcher ends the process itself; so this
// is for jobs without one.
func (j *Job) WhenEnded(lost func(why error), aborted func(code int, why error)) {
	direct, ok := j.way.(rank0)
	if !ok {
		return
	}
	go func() {
		<-direct.Ended()
		why := direct.Why()
		var gone *coordinator.LostError
		var abort *coordinator.AbortError
		switch {
		case errors.As(why, &gone) && j.survives: // WhenFailed tells
		case errors.As(why, &gone):
			lost(why)
		case errors.As(why, &abort) && abort.Rank != direct.Rank():
			aborted(abort.Code, why)
		}
	}()
}
