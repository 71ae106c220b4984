package mpi

import "fmt"

// Dup makes a communicator with the same ranks and a space of messages of its own (MPI 4.1, 7.4.2). It is collective: all ranks of the
// communicator call it, in the same order among its collectives, and it blocks until they have. Free gives it back. The context of a handle
// that WithContext made is not passed on.
func (c *Comm) Dup() (*Comm, error) {
	context, err := c.derive()
	if err != nil {
		return nil, c.failColl("Dup", err)
	}
	if c.members != nil {
		c.e.SetGroup(context, c.members.world)
	}
	return &Comm{space: &space{
		e: c.e, name: fmt.Sprintf("%s.%d", c.name, context/2), context: context, rank: c.rank, size: c.size, members: c.members, job: c.job,
	}}, nil
}

func (c *Comm) derive() (uint32, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.newContext()
}

// Free gives a communicator back, for all handles to it (MPI 4.1, 7.4.3). All of its ranks call it; it does not wait for them. Operations
// under way go on to their end, and their requests can be waited for; what was sent on it must be received in the end. Other calls give
// ErrComm from now on. The world cannot be freed.
func (c *Comm) Free() error {
	err := c.check()
	if err == nil && c.context == 0 {
		err = fmt.Errorf("%w: the world is there until Finalize", ErrComm)
	}
	if err == nil && !c.freed.CompareAndSwap(false, true) {
		err = fmt.Errorf("%w: %s has been freed", ErrComm, c.name)
	}
	if err != nil {
		return c.failColl("Free", err)
	}
	c.job.contexts.retire(c.context)
	return nil
}
