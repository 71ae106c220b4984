package engine

import (
	"errors"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// collectiveBuffers allocates the registered memory of collectives: mailboxes and stages. It counts against
// the rank's budget for buffers. A collective without such memory uses messages. The engine's lock
// guards it.
type collectiveBuffers struct {
	budget *channel.Budget
	bytes  int // allocated
}

var errBuffersSpent = errors.New("the budget for buffers is spent")

func (b *collectiveBuffers) alloc(f *fabric, n int, access transport.Access) (transport.MR, error) {
	if !b.budget.Reserve(n) {
		return nil, errBuffersSpent
	}
	mr, err := f.pd.Alloc(n, access)
	if err != nil {
		b.budget.Release(n)
		return nil, err
	}
	b.bytes += n
	return mr, nil
}

func (b *collectiveBuffers) free(mr transport.MR) error {
	n := len(mr.Bytes())
	b.bytes -= n
	b.budget.Release(n)
	return mr.Deregister()
}
