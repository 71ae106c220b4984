package wireup

import (
	"errors"

	"github.com/weft-mpi/weft/mpi/internal/wireup/coordinator"
)

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
		case errors.As(why, &gone):
			lost(why)
		case errors.As(why, &abort) && abort.Rank != j.direct.Rank():
			aborted(abort.Code, why)
		}
	}()
}
