package tcp

import (
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// memory is the device as its table of regions sees it. Peers reach regions through frames alone, so a key
// that is out of use here is out of use for them: a frame that is being placed fails when its next piece
// comes.
type memory struct{ *Device }

var _ verbs.Memory = memory{}

func (m memory) Closed() bool { return m.Device.Closed() }

func (memory) NewEntry(int) error { return nil }

func (memory) Map(n int, _ transport.Access) ([]byte, error) { return sys.Map(n) }

func (memory) Publish(*verbs.Region, uint32, transport.QPN, transport.Key) {}

func (memory) Registered(*verbs.Region) {}

func (memory) Revoke(r *verbs.Region, owned, leave bool) error {
	if !owned || leave {
		return nil
	}
	return sys.Unmap(r.Mem)
}
