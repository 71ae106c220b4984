package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Claims tells the receiver of a channel where its sender's claims are. It is sent at most once.
type Claims struct {
	Key transport.Key // of their memory, which the receiver can map
}

const claimsLen = 8

// Append appends the message to b.
func (d Claims) Append(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, uint64(d.Key)) }

// ParseClaims parses what Append has written.
func ParseClaims(b []byte) (Claims, error) {
	if len(b) != claimsLen {
		return Claims{}, fmt.Errorf("%w: a CLAIMS has %d bytes, not %d", transport.ErrProtocol, len(b),
			claimsLen)
	}
	return Claims{Key: transport.Key(binary.LittleEndian.Uint64(b))}, nil
}
