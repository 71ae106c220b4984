package mpi

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/internal/contextid"
)

// Dup makes a communicator with the same ranks and its own message space (MPI 4.1, 7.4.2). It is collective:
// all ranks of the communicator call it, in the same order relative to its other collectives. It blocks until
// the ranks have agreed. Free ends the use of the new communicator. Dup fails when the context of the handle
// ends; the new communicator does not inherit that context.
// The attributes whose keys say so are copied (see NewKey).
//
// Options say on which endpoint the new communicator lives; all ranks pass the same.
func (c *Comm) Dup(options ...DupOption) (*Comm, error) {
	d, err := c.dup("Dup", options...)
	if err == nil {
		c.copyAttributes(d.commState)
	}
	return d, err
}

// Idup begins a Dup (MPI 4.1, 7.4.2). *into belongs to weft until the request is complete, and is then the
// new communicator if there is no error. The agreement of the ranks needs no call of this one meanwhile. The
// request fails when the context of the handle ends, or a rank fails. All ranks call Idup, or all Dup.
func (c *Comm) Idup(into **Comm) (Request, error) {
	err := c.checkCall()
	if err == nil && into == nil {
		err = fmt.Errorf("%w: no place for the result", ErrBuffer)
	}
	if err != nil {
		return Request{}, c.failColl("Idup", err)
	}
	h, err := c.e.Requests.BeginTask(c.context)
	if err != nil {
		return Request{}, c.failColl("Idup", err)
	}
	x, compare := c.newCompoundCallLater()
	c.e.Go(func() {
		x.err = compare()
		id, err := x.agree()
		if err == nil {
			d := c.duplicate(id)
			c.copyAttributes(d.commState)
			*into = d
		}
		c.e.Requests.EndTask(h, c.failColl("Idup", err))
	})
	return Request{h, c}, nil
}

func (c *Comm) dup(call string, options ...DupOption) (*Comm, error) {
	if err := c.check(); err != nil {
		return nil, c.failColl(call, err)
	}
	o, err := c.dupOptions(options)
	if err != nil {
		return nil, c.failColl(call, err)
	}
	x := c.newCompoundCall()
	x.endpoint = o.endpoint
	id, err := x.agree()
	if err != nil {
		return nil, c.failColl(call, err)
	}
	d := c.duplicate(id)
	if o.bulk {
		err = d.setBulk(true)
	}
	return d, c.failColl(call, err)
}

// duplicate makes the communicator with an id that the ranks have agreed on.
func (c *Comm) duplicate(id uint32) *Comm {
	d := c.job.newComm(c.childName(id), id, c.rank, c.members)
	d.reproducible = c.reproducible
	return d
}

// childName is the name of a communicator that is made of this one, before SetName.
func (c *Comm) childName(id uint32) string {
	return contextid.Named(fmt.Sprintf("%s.%d", c.Name(), contextid.Local(id)), id)
}

// Free ends the use of a communicator, for all handles to it (MPI 4.1, 7.4.3). All of its ranks call it, but
// Free does not wait for them. Operations under way, and collectives that other ranks have not called yet,
// complete as if Free had not been called, and their requests can still be waited for. The program must
// receive what was sent. Other calls on the communicator return ErrComm, and so does Start of a Persistent.
// The world cannot be freed.
func (c *Comm) Free() error {
	err := c.check()
	if errors.Is(err, ErrRevoked) {
		err = nil
	}
	if err == nil && c.context == contextid.World {
		err = fmt.Errorf("%w: the world lasts until Finalize", ErrComm)
	}
	if err == nil && !c.freed.CompareAndSwap(false, true) {
		err = fmt.Errorf("%w: %s has been freed", ErrComm, c.Name())
	}
	if err != nil {
		return c.failColl("Free", err)
	}
	c.slowPath.Store(true)
	c.job.comms.remove(c.commState)
	c.releaseMailboxes()
	c.deleteAttributes()
	c.job.ids.Free(c.context)
	c.job.log.Debug("communicator freed", "name", c.Name(), "commRank", c.rank)
	return nil
}
