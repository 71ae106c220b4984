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
	descriptorLen     = 24
)

// Append writes the descriptor behind b.
func (d Descriptor) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, descriptorVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(d.SlotSize))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Lines))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Key))
	return binary.LittleEndian.AppendUint64(b, d.Generation)
}

// ParseDescriptor reads what Append has written, and refuses a ring that cannot be.
func ParseDescriptor(b []byte) (Descriptor, error) {
	if len(b) != descriptorLen {
		return Descriptor{}, fmt.Errorf("%w: a ring's descriptor has %d bytes, not %d", transport.ErrProtocol, descriptorLen, len(b))
	}
	if v := binary.LittleEndian.Uint16(b); v != descriptorVersion {
		return Descriptor{}, fmt.Errorf("%w: channel version %d, here %d", transport.ErrVersion, v, descriptorVersion)
	}
	d := Descriptor{
		SlotSize:   int(binary.LittleEndian.Uint16(b[2:])),
		Lines:      int(binary.LittleEndian.Uint32(b[4:])),
		Key:        transport.Key(binary.LittleEndian.Uint64(b[8:])),
		Generation: binary.LittleEndian.Uint64(b[16:]),
	}
	if d.SlotSize == 0 || d.Lines%max(1, d.SlotSize/lineSize) != 0 {
		return Descriptor{}, fmt.Errorf("%w: a ring of %d lines is no number of slots of %d bytes", transport.ErrProtocol, d.Lines,
			d.SlotSize)
	}
	shape := Config{SlotSize: d.SlotSize, Slots: d.Lines / max(1, d.SlotSize/lineSize)}
	if err := shape.validate(); err != nil {
		return Descriptor{}, fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	return d, nil
}
