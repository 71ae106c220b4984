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

// Alone reports whether this process is a world of one rank because no launcher has started it.
func (j *Job) Alone() bool {
	_, ok := j.way.(alone)
	return ok
}

// WhenEnded calls a function, from a separate goroutine, when the job fails elsewhere: lost if a rank is lost
// and the job does not survive that, aborted if another rank has ended the job with a status. Under a
// launcher, which ends the process itself, it calls neither.
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
