package wireup

import (
	"errors"
	"net"

	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// Reporter returns a connection, as described in package snapshot, over which this rank reports its state to
// rank 0; nil under a launcher, or if nobody asks.
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

// WhenEnded calls one of two functions, from a separate goroutine, when the job fails elsewhere: a rank is
// lost, or another rank has ended the job with a status. It is for jobs without a launcher, which would end
// the process.
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
