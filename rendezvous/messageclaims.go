package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Claims is the message with the sender's memory for cooperative copies and for FIN words. It is sent at most
// once per channel.
type Claims struct {
	Key  transport.Key // of the work-claim table, which the receiver can map; 0 for none
	FINs transport.Key // of the ring of FIN words; 0 for none
}

const claimsLen = 16

// Append appends the message to b.
func (d Claims) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Key))
	return binary.LittleEndian.AppendUint64(b, uint64(d.FINs))
}

// ParseClaims parses what Append has written.
func ParseClaims(b []byte) (Claims, error) {
	if len(b) != claimsLen {
		return Claims{}, fmt.Errorf("%w: CLAIMS of %d bytes, not %d", transport.ErrProtocol, len(b),
			claimsLen)
	}
	return Claims{Key: transport.Key(binary.LittleEndian.Uint64(b)),
		FINs: transport.Key(binary.LittleEndian.Uint64(b[8:]))}, nil
}
