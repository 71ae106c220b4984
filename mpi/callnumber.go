package mpi

import (
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
)

// callNumber counts the calls on a communicator. Blocking calls on it, which exclude one another, count with
// a plain store: the processor then goes on while it still waits for the line that an earlier call has
// written.
type callNumber struct {
	shared    atomic.Uint32 // of calls that may be concurrent
	exclusive uint32        // of calls under the lock of the collState
}

// next numbers a call.
func (n *callNumber) next() uint32 { return n.shared.Add(1) + atomic.LoadUint32(&n.exclusive) }

// nextLocked numbers a call under the lock of the collState.
func (n *callNumber) nextLocked() uint32 {
	sys.StoreRelease32(&n.exclusive, n.exclusive+1)
	return n.latest()
}

// latest returns the number of the latest call.
func (n *callNumber) latest() uint32 { return n.shared.Load() + atomic.LoadUint32(&n.exclusive) }
