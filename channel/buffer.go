package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Behind the lines of a ring its region has two more: where an answer to our question lands, and where ours to the peer is made up.
const extraLines = 2

// buffer is registered memory with a ring: one that we receive in, or the mirror of one of the peer's. It lives as long as somebody
// holds it: the ring while it is in use, and a question of ours whose answer is still to land behind the ring.
type buffer struct {
	transport.MR
	shape
	holds int
	owner *Channel
}

// errBudget says that the buffers of this rank have reached their bound.
var errBudget = errors.New("the budget for buffers is spent")

// newBuffer makes the memory for a ring, held once. The first ones of a channel are not refused for the budget.
func (c *Channel) newBuffer(s shape, access transport.Access, first bool) (*buffer, error) {
	size := s.region()
	if !c.conf.Budget.take(size, first) {
		return nil, errBudget
	}
	mr, err := c.pd.Alloc(size, access)
	if err != nil {
		c.conf.Budget.give(size)
		return nil, fmt.Errorf("a ring of %d bytes: %w", size, err)
	}
	c.stats.Registered += size
	return &buffer{MR: mr, shape: s, holds: 1, owner: c}, nil
}

// ring is the memory of the ring itself.
func (b *buffer) ring() []byte { return b.Bytes()[:b.lines*lineSize] }

// landing is where in the region an answer lands, and the place behind it where one is made up.
func (b *buffer) landing() int { return b.lines * lineSize }

// release ends one hold; the last one gives the memory back.
func (b *buffer) release() error {
	if b == nil || b.holds == 0 {
		return nil
	}
	if b.holds--; b.holds > 0 {
		return nil
	}
	return b.free()
}

func (b *buffer) free() error {
	b.holds = 0
	b.owner.stats.Registered -= b.region()
	b.owner.conf.Budget.give(b.region())
	return b.Deregister()
}

// drop gives the memory back whoever holds it.
func (b *buffer) drop() error {
	if b == nil || b.holds == 0 {
		return nil
	}
	return b.free()
}
