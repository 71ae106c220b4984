package tcp

import (
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// memory is the device's part of its table of regions. Peers access regions only by frames, so a key that is
// invalid here is invalid for them: placing the rest of a frame then fails.
type memory struct{ *Device }

var _ verbs.Memory = memory{}

func (m memory) Closed() bool { return m.Device.Closed() }

func (memory) NewEntry(int) error { return nil }

func (memory) Map(n int, _ transport.Access) ([]byte, error) { return sys.Map(n) }

func (memory) Publish(*verbs.Region, uint32, transport.Key) {}

func (memory) Registered(*verbs.Region) {}

func (memory) Revoke(r *verbs.Region, owned, leave bool) error {
	if !owned || leave {
		return nil
	}
	return sys.Unmap(r.Mem)
}
