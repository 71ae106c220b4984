package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// question is the body of ENLARGE and SHRINK: the phase wanted, and where the answer shall land.
type question struct {
	phase      int
	key        transport.Key // of our receive region
	offset     uint64
	generation uint64 // of the answer's flags: random, so that nothing that was there before matches
}

const questionLen = 28

func (q question) put(b []byte) {
	binary.LittleEndian.PutUint32(b, uint32(q.phase))
	binary.LittleEndian.PutUint64(b[4:], uint64(q.key))
	binary.LittleEndian.PutUint64(b[12:], q.offset)
	binary.LittleEndian.PutUint64(b[20:], q.generation)
}

func parseQuestion(b []byte, phases int) (question, error) {
	if len(b) != questionLen {
		return question{}, fmt.Errorf("%w: a question of %d bytes, not %d", transport.ErrProtocol, len(b), questionLen)
	}
	q := question{
		phase: int(binary.LittleEndian.Uint32(b)), key: transport.Key(binary.LittleEndian.Uint64(b[4:])),
		offset: binary.LittleEndian.Uint64(b[12:]), generation: binary.LittleEndian.Uint64(b[20:]),
	}
	if q.phase < 0 || q.phase >= phases {
		return question{}, fmt.Errorf("%w: a question for phase %d of %d", transport.ErrProtocol, q.phase, phases)
	}
	return q, nil
}
