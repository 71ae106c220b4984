package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// After the lines of a ring its region has two more: the reply slot, which takes the reply to our resize
// request, and the line out of which our own reply is sent.
const extraLines = 2

// ringRights are those of a ring that we receive in: only the peer's Writes change it.
const ringRights = transport.RemoteWrite | transport.SoleWriter

// buffer is registered memory with a ring: one that we receive in, or the mirror of one of the peer's. It is
// referenced by the ring while that is in use, and by a resize request of ours whose reply is still to come.
type buffer struct {
	transport.MR
	shape
	refs  int
	owner *Channel
}

// errBudget says that the buffers of this rank have reached their bound.
var errBudget = errors.New("the budget for buffers is spent")

// newBuffer makes the memory for a ring, with one reference. The first buffers of a channel are not refused
// for the budget.
func (c *Channel) newBuffer(s shape, access transport.Access, first bool) (*buffer, error) {
	size := s.region()
	if !c.conf.Budget.reserve(size, first) {
		return nil, errBudget
	}
	mr, err := c.pd.Alloc(size, access)
	if err != nil {
		c.conf.Budget.release(size)
		return nil, fmt.Errorf("a ring of %d bytes: %w", size, err)
	}
	c.stats.Registered += size
	return &buffer{MR: mr, shape: s, refs: 1, owner: c}, nil
}

// ring is the memory of the ring itself.
func (b *buffer) ring() []byte { return b.Bytes()[:b.lines*lineSize] }

// replyOffset is the offset of the reply slot in the region. The line after it is the one out of which our
// reply is sent.
func (b *buffer) replyOffset() int { return b.lines * lineSize }

// release drops one reference; the last one gives the memory back.
func (b *buffer) release() error {
	if b == nil || b.refs == 0 {
		return nil
	}
	if b.refs--; b.refs > 0 {
		return nil
	}
	return b.free()
}

func (b *buffer) free() error {
	b.refs = 0
	b.owner.stats.Registered -= b.region()
	b.owner.conf.Budget.release(b.region())
	return b.Deregister()
}

// drop gives the memory back whatever refers to it.
func (b *buffer) drop() error {
	if b == nil || b.refs == 0 {
		return nil
	}
	return b.free()
}
