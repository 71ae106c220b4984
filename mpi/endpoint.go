package mpi

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Endpoint returns the number of the endpoint of this rank on which the communicator lives; it is the same at
// all of its ranks. An endpoint is one of a rank's independent message engines, each with its own lock,
// connections and progress (MPICH calls them VCIs). Endpoints are numbered from 0, the world's. Calls on
// communicators of different endpoints share no lock, so goroutines that each have a communicator of their
// own run side by side on the rank's cores. A new communicator takes the endpoints in turn. A rank has as
// many endpoints as WEFT_ENDPOINTS says, or one for each of its cores, at most 8; all ranks have as many.
func (c *Comm) Endpoint() int {
	if c == nil || c.commState == nil {
		return 0
	}
	return c.e.Number()
}

// DupOption is an option of Comm.Dup.
type DupOption func(*dupOptions)

type dupOptions struct {
	endpoint int
	bulk     bool
}

// OnEndpoint has a duplicate live on the endpoint of a number from 0 on. Dup fails with ErrArg at all ranks
// if one of them has no such endpoint; a program that names one sets WEFT_ENDPOINTS (Config.Defaults).
func OnEndpoint(number int) DupOption {
	return func(o *dupOptions) { o.endpoint = number }
}

// Bulk makes the completion handler of the duplicate's endpoint one of the bulk class, with low priority: on
// its core it yields to the handlers of other endpoints, but not forever. It is for communicators of long
// messages that must not slow down short ones. It applies to all communicators of the endpoint at this rank,
// and has no effect if the rank has no completion handlers: threads that serve its endpoints' completion
// queues outside of calls.
func Bulk() DupOption {
	return func(o *dupOptions) { o.bulk = true }
}

func (c *Comm) dupOptions(options []DupOption) (dupOptions, error) {
	o := dupOptions{endpoint: contextid.AnyEndpoint}
	for _, option := range options {
		option(&o)
	}
	if o.endpoint < contextid.AnyEndpoint || o.endpoint >= contextid.MaxEndpoints {
		return o, fmt.Errorf("%w: endpoint %d; a rank has endpoints 0 to %d at most", ErrArg, o.endpoint,
			contextid.MaxEndpoints-1)
	}
	return o, nil
}

// noEndpoint is the error, at all ranks, of a communicator on an endpoint that some rank does not have.
func noEndpoint(number int) error {
	return fmt.Errorf("%w: not all ranks have an endpoint %d (WEFT_ENDPOINTS)", ErrArg, number)
}

// setBulk changes the class of the endpoint's completion handler.
func (c *Comm) setBulk(bulk bool) error {
	at, has := c.e.Handler()
	if at.Bulk = bulk; !has {
		return nil
	}
	return c.e.MoveHandler(at)
}

// MoveHandler moves the completion handler of the communicator's endpoint to another core of this rank. It
// applies to all communicators of the endpoint. It fails with ErrArg if the rank has no completion handlers,
// or may not use the core.
func (c *Comm) MoveHandler(core int) error {
	err := c.check()
	if err == nil {
		at, has := c.e.Handler()
		if at.Core = core; !has {
			err = fmt.Errorf("%w: this rank has no completion handlers (WEFT_CQ_CORES)", ErrArg)
		} else if err = c.e.MoveHandler(at); err != nil {
			err = fmt.Errorf("%w: %w", ErrArg, err)
		}
	}
	return c.fail("MoveHandler", NoPeer, NoPeer, err)
}

// endpointOf returns the endpoint of the communicator with an id. It exists: the rank has made it before it
// accepted the id.
func (j *job) endpointOf(id uint32) *engine.Engine {
	e, err := j.hub.Endpoint(contextid.Endpoint(id))
	if err != nil {
		panic(err)
	}
	return e
}
