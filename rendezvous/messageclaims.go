package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Claims tells the receiver of a channel where its sender's claims are, and where FINs may come. It is sent
// at most once.
type Claims struct {
	Key  transport.Key // of their memory, which the receiver can map; 0 for none
	FINs transport.Key // of the ring of words; 0 for none
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
		return Claims{}, fmt.Errorf("%w: a CLAIMS has %d bytes, not %d", transport.ErrProtocol, len(b),
			claimsLen)
	}
	return Claims{Key: transport.Key(binary.LittleEndian.Uint64(b)),
		FINs: transport.Key(binary.LittleEndian.Uint64(b[8:]))}, nil
}
