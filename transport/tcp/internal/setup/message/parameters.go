package message

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/weft-mpi/weft/transport"
)

// Parameters are what each side sends of itself in the handshake, after its proof in Request and in Accept.
// Both sides derive the same agreement from them.
type Parameters struct {
	Reads      int              // Reads and Atomics outstanding at once, each way, at most
	Lanes      int              // maximum connections of one queue pair
	Recv       int              // depth of its receive queue
	Checksum   bool             // it requests a CRC32C in every frame
	Reconnects bool             // lost connections can be re-established: Listens is not empty
	Listens    []netip.AddrPort // where the other side can connect further lanes
}

// Agreement is the result of both sides' parameters, as one of them sees it.
type Agreement struct {
	Reads int // Reads and Atomics outstanding at once, each way: the smaller of both numbers
	// depth of the peer's receive queue: no more messages can be in flight
	PeerRecv   int
	Lanes      int              // the smaller of both numbers
	Checksum   bool             // either side requests it
	Reconnects bool             // both sides can have lanes, or re-establish a connection
	Listens    []netip.AddrPort // where this side can connect further lanes
}

// Limits of the parameters.
const (
	MaxReads = 64      // Reads and Atomics outstanding at once, each way
	MaxLanes = 16      // connections of a queue pair
	MaxDepth = 1 << 15 // of a receive queue
)

const (
	ParametersSize = 12
	MaxParameters  = 64 // including fields of later versions
	lanesHead      = 4  // after them, if the side can have lanes
	lanesAddress   = 16
)

// Values of the checksum parameter.
const (
	checksumNone   = 0
	ChecksumCRC32C = 1
)

// Append writes the block: length of it (2 bytes), reads (2), lanes (2), checksum (1), reserved (1), receive
// queue (4).
func (p Parameters) Append(b []byte) []byte {
	size := ParametersSize
	if p.Reconnects {
		size += lanesHead + len(p.Listens)*lanesAddress
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(size))
	b = binary.LittleEndian.AppendUint16(b, uint16(p.Reads))
	b = binary.LittleEndian.AppendUint16(b, uint16(p.Lanes))
	wish := byte(checksumNone)
	if p.Checksum {
		wish = ChecksumCRC32C
	}
	b = append(b, wish, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Recv))
	if !p.Reconnects {
		return b
	}
	b = binary.LittleEndian.AppendUint16(b, p.Listens[0].Port())
	b = append(b, byte(len(p.Listens)), 0)
	for _, a := range p.Listens {
		raw := a.Addr().As16()
		b = append(b, raw[:]...)
	}
	return b
}

// parseLanes parses the addresses for lanes, which follow the other parameters if the side can have lanes.
func (p *Parameters) parseLanes(b []byte) error {
	if len(b) < lanesHead || b[2] == 0 {
		return nil // none
	}
	port, count := binary.LittleEndian.Uint16(b), int(b[2])
	if len(b) < lanesHead+count*lanesAddress || b[3] != 0 {
		return fmt.Errorf("%w: parameters of %d addresses in %d bytes", transport.ErrProtocol, count, len(b))
	}
	p.Reconnects = true
	for k := range count {
		raw := b[lanesHead+k*lanesAddress:][:lanesAddress]
		p.Listens = append(p.Listens, netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw)).Unmap(), port))
	}
	return nil
}

// ParseParameters parses the parameters at the beginning of b and returns the rest. Longer parameters come
// from a later version: their first fields mean the same, and the others are ignored.
func ParseParameters(b []byte) (p Parameters, rest []byte, err error) {
	if len(b) < ParametersSize {
		return p, nil, fmt.Errorf("%w: %d bytes of parameters", transport.ErrProtocol, len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n < ParametersSize || n > MaxParameters || n > len(b) {
		return p, nil, fmt.Errorf("%w: parameters of %d bytes in a message of %d; %d to %d are possible",
			transport.ErrProtocol, n, len(b), ParametersSize, MaxParameters)
	}
	p.Reads = int(binary.LittleEndian.Uint16(b[2:]))
	p.Lanes = int(binary.LittleEndian.Uint16(b[4:]))
	wish := b[6]
	p.Recv = int(binary.LittleEndian.Uint32(b[8:]))
	switch {
	case wish > ChecksumCRC32C || b[7] != 0:
		return p, nil, fmt.Errorf("%w: parameters with unknown checksum %d, %d",
			transport.ErrProtocol, wish, b[7])
	case p.Lanes < 1:
		return p, nil, fmt.Errorf("%w: parameters with no lane", transport.ErrProtocol)
	case p.Recv < 1 || p.Recv > MaxDepth:
		return p, nil, fmt.Errorf("%w: parameters of a receive queue of depth %d; 1 to %d are possible",
			transport.ErrProtocol, p.Recv, MaxDepth)
	}
	p.Checksum = wish == ChecksumCRC32C
	return p, b[n:], p.parseLanes(b[ParametersSize:n])
}

// Negotiate returns the agreement that follows from the parameters of both sides.
func (p Parameters) Negotiate(peer Parameters) Agreement {
	lanes := 1
	if p.Reconnects && peer.Reconnects {
		lanes = min(p.Lanes, peer.Lanes, MaxLanes)
	}
	return Agreement{
		Reads: min(p.Reads, peer.Reads, MaxReads), PeerRecv: peer.Recv, Lanes: lanes,
		Checksum: p.Checksum || peer.Checksum, Reconnects: p.Reconnects && peer.Reconnects,
		Listens: peer.Listens,
	}
}
