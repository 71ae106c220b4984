package mpi

import (
	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Endpoint returns the number of the endpoint of this rank on which the communicator lives; it is the same at
// all of its ranks. Endpoints are numbered from 0, the world's. Calls on communicators of different endpoints
// share no lock, so goroutines that each have a communicator of their own run side by side on the rank's cores
// (WEFT_ENDPOINTS). A new communicator takes the endpoints in turn.
func (c *Comm) Endpoint() int {
	if c == nil || c.commState == nil {
		return 0
	}
	return c.e.Number()
}

// endpointOf is the endpoint of the communicator with an id. It is there: the rank has made it before it
// accepted the id.
func (j *job) endpointOf(id uint32) *engine.Engine {
	e, err := j.hub.Endpoint(contextid.Endpoint(id))
	if err != nil {
		panic(err)
	}
	return e
}
