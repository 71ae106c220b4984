package mpitest

import "github.com/weft-mpi/weft/mpi/internal/engine"

// tell handles an event of a rank's engine.
func (r *rank) tell(e engine.Event) {
	r.job.told.Add(1)
	if e.Kind == engine.EventCallBegin {
		r.takeTurn(callSum(&e))
		r.countCall()
		r.job.turns.engines[r.number].begins(e.Call)
	}
	if x := r.job.explored; x != nil {
		x.tell(r.number, e)
	}
	if listen := r.job.listen; listen != nil {
		listen(r.number, e)
	}
}

// callSum returns a hash of a call and its arguments.
func callSum(e *engine.Event) uint64 {
	return mix(uint64(e.Call)<<48 ^ uint64(e.Bytes))
}
