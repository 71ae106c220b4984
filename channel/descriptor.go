package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Descriptor describes the ring in which a rank begins to receive, and the sizes to which it can grow, for
// the peer.
type Descriptor struct {
	Phases     []int         // sizes of a slot, in bytes; the geometry of every ring follows from them
	KeepSmall  bool          // the first ring stays in addition to those of the other phases
	Key        transport.Key // of the region whose first lines are the ring
	Generation uint64        // of the first wrap (flags.go)
}

const (
	descriptorVersion = 11
	descriptorLen     = 20 // and 4 for each phase
	keepSmallBit      = 1  // of the flags
)

// Append appends the descriptor to b.
func (d Descriptor) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, descriptorVersion)
	flags := byte(0)
	if d.KeepSmall {
		flags |= keepSmallBit
	}
	b = append(b, byte(len(d.Phases)), flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Key))
	b = binary.LittleEndian.AppendUint64(b, d.Generation)
	for _, slot := range d.Phases {
		b = binary.LittleEndian.AppendUint32(b, uint32(slot))
	}
	return b
}

// ParseDescriptor parses what Append has written, and rejects an invalid ring.
func ParseDescriptor(b []byte) (Descriptor, error) {
	if len(b) < 2 {
		return Descriptor{}, fmt.Errorf("%w: a ring's descriptor of %d bytes", transport.ErrProtocol, len(b))
	}
	if v := binary.LittleEndian.Uint16(b); v != descriptorVersion {
		return Descriptor{}, fmt.Errorf("%w: channel version %d, here %d: run the same weft on all hosts",
			transport.ErrVersion, v, descriptorVersion)
	}
	if len(b) < descriptorLen {
		return Descriptor{}, fmt.Errorf("%w: a ring's descriptor of %d bytes", transport.ErrProtocol, len(b))
	}
	n, flags := int(b[2]), b[3]
	if n < 1 || n > maxPhases || len(b) != descriptorLen+4*n {
		return Descriptor{}, fmt.Errorf("%w: a ring's descriptor of %d bytes with %d phases",
			transport.ErrProtocol, len(b), n)
	}
	if flags&^keepSmallBit != 0 {
		return Descriptor{}, fmt.Errorf("%w: a ring's descriptor with flags %#x", transport.ErrProtocol,
			flags)
	}
	d := Descriptor{
		KeepSmall:  flags&keepSmallBit != 0,
		Key:        transport.Key(binary.LittleEndian.Uint64(b[4:])),
		Generation: binary.LittleEndian.Uint64(b[12:]),
	}
	for i := range n {
		d.Phases = append(d.Phases, int(binary.LittleEndian.Uint32(b[descriptorLen+4*i:])))
	}
	if err := (Config{Phases: d.Phases}).Check(); err != nil {
		return Descriptor{}, fmt.Errorf("%w: the peer's phases: %w", transport.ErrProtocol, err)
	}
	return d, nil
}
