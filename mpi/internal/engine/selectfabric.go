package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// selectFabric chooses the fabric to a peer, which decides between shared memory and TCP: the first one, in
// order of preference, that reaches the peer's address. Both sides choose the same, since they have the same
// order and see the same addresses.
func (d *connections) selectFabric(rank int) (*fabric, string, error) {
	for _, f := range d.e.fabrics {
		addr, err := d.lookup(uint32(rank), f.name)
		if err != nil {
			return nil, "", err
		}
		if addr != "" && f.listener.Reaches(addr) {
			return f, addr, nil
		}
	}
	return nil, "", fmt.Errorf("%w: no fabric of this rank reaches rank %d (shm reaches ranks of the same "+
		"host only); set WEFT_FABRIC=auto", transport.ErrInvalid, rank)
}
