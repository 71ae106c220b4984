package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// ATS (acknowledge to sender) ends an announcement by a message in the ring: the receiver has finished with
// it or, in answer to WITHDRAW, has discarded it.
type ATS struct {
	ID        uint64
	Withdrawn bool // no receive has matched the message, and none will
}

const (
	atsLen       = 8
	withdrawnBit = 1 << 63
)

// Append appends the ATS to b.
func (d ATS) Append(b []byte) []byte {
	id := d.ID
	if d.Withdrawn {
		id |= withdrawnBit
	}
	return binary.LittleEndian.AppendUint64(b, id)
}

// ParseATS parses what Append has written.
func ParseATS(b []byte) (ATS, error) {
	if len(b) != atsLen {
		return ATS{}, fmt.Errorf("%w: an ATS has %d bytes, not %d", transport.ErrProtocol, len(b), atsLen)
	}
	id := binary.LittleEndian.Uint64(b)
	return ATS{ID: id & idBits, Withdrawn: id&withdrawnBit != 0}, nil
}
