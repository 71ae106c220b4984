package mpi

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Special ranks and tags (MPI 4.1, sections 3.2.4 and 3.10).
const (
	AnySource = engine.AnySource // receive from whichever rank sends
	AnyTag    = engine.AnyTag    // receive whichever tag comes
	ProcNull  = engine.ProcNull  // a rank that is not there: sending to it and receiving from it do nothing
	Undefined = -32766           // the color of a rank that Split leaves out
)

// TagUB is the largest tag.
const TagUB = 1<<30 - 1

// Comm is a communicator: a group of ranks with a space of messages of its own (MPI 4.1, chapter 7). Messages of different communicators
// never mix.
type Comm struct {
	*space
	scope *engine.Scope // ends with the context that WithContext was given; nil without one
}

// space is what all handles to a communicator share.
type space struct {
	e       *engine.Engine
	name    string
	context uint32 // of its messages; the one above it is of its collectives
	rank    int
	size    int
	members *members // nil for those of the world
	job     *job
	coll    collState
	agree   sync.Mutex  // held by whoever looks for a number for a new communicator
	freed   atomic.Bool // Free has been called
}

// Rank is this process's rank in the communicator: 0 … Size-1.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// String is the communicator's name, for messages.
func (c *Comm) String() string { return c.name }

// Abort ends the whole job: every rank is ended, and the launcher exits with code (1 for a code of 0, so that an abort never
// looks like success; the low 8 bits of any other). It does not return.
func (c *Comm) Abort(code int) {
	if code&0xff == 0 {
		code = 1
	}
	fmt.Fprintf(os.Stderr, "weft: rank %d called Abort(%d)\n", c.rank, code)
	c.job.abort(code & 0xff)
	os.Exit(code & 0xff)
}

// check refuses a call on a communicator that cannot be used.
func (c *Comm) check() error {
	if c == nil {
		if !initialized() {
			return ErrNotInitialized
		}
		return fmt.Errorf("%w: nil", ErrComm)
	}
	if c.space == nil {
		return fmt.Errorf("%w: a Comm comes from Init, Dup or Split", ErrComm)
	}
	if ended.Load() {
		return ErrFinalized
	}
	if c.freed.Load() {
		return fmt.Errorf("%w: %s has been freed", ErrComm, c.name)
	}
	return nil
}

// checkCall is check for calls that end with the context of their handle. Collectives look at it later, when they have counted.
func (c *Comm) checkCall() error {
	if err := c.check(); err != nil {
		return err
	}
	return c.scope.Err()
}

// fail makes the error of a point-to-point operation.
func (c *Comm) fail(op string, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	name := ""
	if c != nil && c.space != nil {
		name = c.name
	}
	var inner *Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return &Error{Op: op, Comm: name, Peer: peer, Tag: tag, Err: err}
}

// plain tells at a glance whether checkSend and checkRecv have nothing to say: no wildcard, no context that might end.
func (c *Comm) plain(peer, tag int) bool {
	return c != nil && c.space != nil && c.scope == nil && !ended.Load() && !c.freed.Load() && uint(peer) < uint(c.size) && uint(tag) <= TagUB
}

// checkSend tells whether a message can be addressed so.
func (c *Comm) checkSend(dst, tag int) error {
	if err := c.checkCall(); err != nil {
		return err
	}
	if dst == ProcNull {
		return nil
	}
	if uint(dst) >= uint(c.size) {
		return fmt.Errorf("%w: %d; %s has ranks 0 to %d", ErrRank, dst, c.name, c.size-1)
	}
	if uint(tag) > TagUB {
		return fmt.Errorf("%w: %d; tags are 0 to %d", ErrTag, tag, TagUB)
	}
	return nil
}

// checkRecv is checkSend with the wildcards allowed.
func (c *Comm) checkRecv(src, tag int) error {
	if err := c.checkCall(); err != nil {
		return err
	}
	if src == ProcNull {
		return nil
	}
	if uint(src) >= uint(c.size) && src != AnySource {
		return fmt.Errorf("%w: %d; %s has ranks 0 to %d", ErrRank, src, c.name, c.size-1)
	}
	if uint(tag) > TagUB && tag != AnyTag {
		return fmt.Errorf("%w: %d; tags are 0 to %d, or AnyTag", ErrTag, tag, TagUB)
	}
	return nil
}
