package wireup

import (
	"errors"
	"net"

	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

// Reporter is a connection as that of package snapshot, over which this rank tells rank 0 its state; nil
// where there is a launcher, or nobody wants to know.
func (j *Job) Reporter() net.Conn {
	if j.direct == nil || !j.direct.Watched() {
		return nil
	}
	return j.direct.Reporter()
}

// UnderPMI tells whether a launcher has started this rank, weft's or another.
func (j *Job) UnderPMI() bool { return j.client != nil && j.direct == nil && !j.together }

// WhenEnded has one of two functions called, from a goroutine of its own, when the job fails elsewhere: a
// rank is lost, or another rank has ended the job with a status. A launcher ends the process itself; so this
// is for jobs without one.
func (j *Job) WhenEnded(lost func(why error), aborted func(code int, why error)) {
	if j.direct == nil {
		return
	}
	go func() {
		<-j.direct.Ended()
		why := j.direct.Why()
		var gone *coordinator.LostError
		var abort *coordinator.AbortError
		switch {
		case errors.As(why, &gone) && j.survives: // WhenFailed tells
		case errors.As(why, &gone):
			lost(why)
		case errors.As(why, &abort) && abort.Rank != j.direct.Rank():
			aborted(abort.Code, why)
		}
	}()
}
