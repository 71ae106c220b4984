package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Descriptor is what a rank tells its peer about the ring in which it receives.
type Descriptor struct {
	SlotSize   int           // the most that one message may take, in bytes
	Lines      int           // of 64 bytes, of the ring
	Key        transport.Key // of the region that the ring fills
	Generation uint64        // of the first lap
}

const (
	descriptorVersion = 1
	descriptorLen     = 28
)

// Append writes the descriptor behind b.
func (d Descriptor) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, descriptorVersion)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(d.SlotSize))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Lines))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Key))
	return binary.LittleEndian.AppendUint64(b, d.Generation)
}

// ParseDescriptor reads what Append has written, and refuses a ring that cannot be.
func ParseDescriptor(b []byte) (Descriptor, error) {
	if len(b) < 2 {
		return Descriptor{}, fmt.Errorf("%w: a ring's descriptor of %d bytes", transport.ErrProtocol, len(b))
	}
	if v := binary.LittleEndian.Uint16(b); v != descriptorVersion {
		return Descriptor{}, fmt.Errorf("%w: channel version %d, here %d: run the same weft on all hosts", transport.ErrVersion, v,
			descriptorVersion)
	}
	if len(b) != descriptorLen {
		return Descriptor{}, fmt.Errorf("%w: a ring's descriptor has %d bytes, not %d", transport.ErrProtocol, descriptorLen, len(b))
	}
	slot, lines := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	if zero := binary.LittleEndian.Uint16(b[2:]); zero != 0 || slot < minSlot || slot > maxSlot || slot%lineSize != 0 ||
		lines > maxRing/lineSize || lines%(slot/lineSize) != 0 {
		return Descriptor{}, fmt.Errorf("%w: a ring of %d lines, slots of %d bytes, reserved field %d", transport.ErrProtocol, lines,
			slot, zero)
	}
	shape := Config{SlotSize: int(slot), Slots: int(lines / (slot / lineSize))}
	if err := shape.validate(); err != nil {
		return Descriptor{}, fmt.Errorf("%w: peer's ring: %w", transport.ErrProtocol, err)
	}
	return Descriptor{
		SlotSize:   shape.SlotSize,
		Lines:      shape.lines(),
		Key:        transport.Key(binary.LittleEndian.Uint64(b[12:])),
		Generation: binary.LittleEndian.Uint64(b[20:]),
	}, nil
}
