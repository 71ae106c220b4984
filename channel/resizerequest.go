package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// resizeRequest is the body of ENLARGE and SHRINK: the requested phase, and the address for the reply.
type resizeRequest struct {
	phase      int
	key        transport.Key // of our receive region
	offset     uint64
	generation uint64 // a nonce: the flags of the reply, so that old bytes do not match
}

const requestLen = 28

func (q resizeRequest) put(b []byte) {
	binary.LittleEndian.PutUint32(b, uint32(q.phase))
	binary.LittleEndian.PutUint64(b[4:], uint64(q.key))
	binary.LittleEndian.PutUint64(b[12:], q.offset)
	binary.LittleEndian.PutUint64(b[20:], q.generation)
}

func parseRequest(b []byte, phases int) (resizeRequest, error) {
	if len(b) != requestLen {
		return resizeRequest{}, fmt.Errorf("%w: a resize request of %d bytes, not %d",
			transport.ErrProtocol, len(b), requestLen)
	}
	q := resizeRequest{
		phase: int(binary.LittleEndian.Uint32(b)), key: transport.Key(binary.LittleEndian.Uint64(b[4:])),
		offset: binary.LittleEndian.Uint64(b[12:]), generation: binary.LittleEndian.Uint64(b[20:]),
	}
	if q.phase < 0 || q.phase >= phases {
		return resizeRequest{}, fmt.Errorf("%w: a resize request for phase %d of %d", transport.ErrProtocol,
			q.phase, phases)
	}
	return q, nil
}
