package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// A ring's region has two more lines: the reply slot, for the reply to our resize request, and the line from
// which our own reply is sent.
const extraLines = 2

// ringRights are the rights of a receive ring: only the peer's Writes change it.
const ringRights = transport.RemoteWrite | transport.SoleWriter

// buffer is registered memory of a ring: one in which we receive, or the mirror of one of the peer's. The
// ring holds a reference while it is in use, and so does a resize request of ours until its reply arrives.
type buffer struct {
	transport.MR
	shape
	refs   int
	memory *memory
}

// memory makes the registered memory of a channel's rings, and counts it.
type memory struct {
	pd         transport.PD
	conf       *Config
	registered int // bytes
}

// errBudget says that the buffers of this rank have reached the budget.
var errBudget = errors.New("the budget for buffers is spent")

// alloc makes the memory of a ring, with one reference. The budget does not limit the rings of the
// first phase, at first and later.
func (m *memory) alloc(s shape, access transport.Access, first bool) (*buffer, error) {
	size := s.region()
	if !m.conf.Budget.reserve(size, first) {
		return nil, errBudget
	}
	mr, err := m.pd.Alloc(size, access)
	if err != nil {
		m.conf.Budget.Release(size)
		return nil, fmt.Errorf("a ring of %d bytes: %w", size, err)
	}
	m.registered += size
	return &buffer{MR: mr, shape: s, refs: 1, memory: m}, nil
}

// ringOf makes the memory for the ring of another phase: none if the first ring stays alone.
func (m *memory) ringOf(target shape, access transport.Access) (*buffer, error) {
	if m.conf.KeepSmall && target.phase == 0 {
		return nil, nil
	}
	return m.alloc(target, access, target.phase == 0)
}

// ring returns the memory of the ring itself.
func (b *buffer) ring() []byte { return b.Bytes()[:b.lines*lineSize] }

// replyOffset returns the offset of the reply slot in the region. Our own reply is sent from the line after
// it.
func (b *buffer) replyOffset() int { return b.lines * lineSize }

// release drops one reference; the last one frees the memory.
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
	b.memory.registered -= b.region()
	b.memory.conf.Budget.Release(b.region())
	return b.Deregister()
}

// drop frees the memory, even if it is referenced.
func (b *buffer) drop() error {
	if b == nil || b.refs == 0 {
		return nil
	}
	return b.free()
}
