package tcp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/weft-mpi/weft/transport"
)

// parameters are what each side sends of itself in the handshake, after its proof in Request and in Accept.
// Both sides derive the same agreement from the two by one rule.
type parameters struct {
	reads    int              // Reads and Atomics outstanding at once, each way, at most
	lanes    int              // connections that it would join into one queue pair at most
	recv     int              // depth of its receive queue
	checksum bool             // it requests a CRC32C in every frame
	keeps    bool             // queue pairs may outlive their connections: listens is not empty
	listens  []netip.AddrPort // where the other side can connect further lanes
}

// agreement is what two ends have agreed on, as one of them sees it.
type agreement struct {
	reads int // Reads and Atomics outstanding at once, each way: the smaller of both numbers
	// depth of the peer's receive queue: more messages than that cannot be on their way
	peerRecv int
	lanes    int              // the smaller of both numbers
	checksum bool             // either side requests it
	keeps    bool             // both can have lanes, or a connection that is re-established
	listens  []netip.AddrPort // where this side can connect further lanes
}

const (
	parametersSize = 12
	maxParameters  = 64 // with fields that a later version may add
	lanesHead      = 4  // after them, of who can have lanes
	lanesAddress   = 16
)

// Values of the checksum parameter.
const (
	checksumNone   = 0
	checksumCRC32C = 1
)

// append writes the block: length of it (2 bytes), reads (2), lanes (2), checksum (1), reserved (1), receive
// queue (4).
func (p parameters) append(b []byte) []byte {
	size := parametersSize
	if p.keeps {
		size += lanesHead + len(p.listens)*lanesAddress
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(size))
	b = binary.LittleEndian.AppendUint16(b, uint16(p.reads))
	b = binary.LittleEndian.AppendUint16(b, uint16(p.lanes))
	wish := byte(checksumNone)
	if p.checksum {
		wish = checksumCRC32C
	}
	b = append(b, wish, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.recv))
	if !p.keeps {
		return b
	}
	b = binary.LittleEndian.AppendUint16(b, p.listens[0].Port())
	b = append(b, byte(len(p.listens)), 0)
	for _, a := range p.listens {
		raw := a.Addr().As16()
		b = append(b, raw[:]...)
	}
	return b
}

// parseLanes reads what stands after the others of who can have lanes.
func (p *parameters) parseLanes(b []byte) error {
	if len(b) < lanesHead || b[2] == 0 {
		return nil // none
	}
	port, count := binary.LittleEndian.Uint16(b), int(b[2])
	if len(b) < lanesHead+count*lanesAddress || b[3] != 0 {
		return fmt.Errorf("%w: parameters of %d addresses in %d bytes", transport.ErrProtocol, count, len(b))
	}
	p.keeps = true
	for k := range count {
		raw := b[lanesHead+k*lanesAddress:][:lanesAddress]
		p.listens = append(p.listens, netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw)).Unmap(), port))
	}
	return nil
}

// parseParameters reads the block at the beginning of b and returns what is after it. A longer block is of a
// later version: its first fields mean the same, and those after them are not for us.
func parseParameters(b []byte) (p parameters, rest []byte, err error) {
	if len(b) < parametersSize {
		return p, nil, fmt.Errorf("%w: %d bytes of parameters", transport.ErrProtocol, len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n < parametersSize || n > maxParameters || n > len(b) {
		return p, nil, fmt.Errorf("%w: parameters of %d bytes, %d to %d are possible, and %d are there",
			transport.ErrProtocol, n,
			parametersSize, maxParameters, len(b))
	}
	p.reads = int(binary.LittleEndian.Uint16(b[2:]))
	p.lanes = int(binary.LittleEndian.Uint16(b[4:]))
	wish := b[6]
	p.recv = int(binary.LittleEndian.Uint32(b[8:]))
	switch {
	case wish > checksumCRC32C || b[7] != 0:
		return p, nil, fmt.Errorf("%w: parameters ask for checksum %d, %d, which is not known",
			transport.ErrProtocol, wish, b[7])
	case p.lanes < 1:
		return p, nil, fmt.Errorf("%w: parameters of no lane", transport.ErrProtocol)
	case p.recv < 1 || p.recv > maxDepth:
		return p, nil, fmt.Errorf("%w: parameters of a receive queue of depth %d; 1 to %d are possible",
			transport.ErrProtocol, p.recv,
			maxDepth)
	}
	p.checksum = wish == checksumCRC32C
	return p, b[n:], p.parseLanes(b[parametersSize:n])
}

// parameters are what this side says of itself for a queue pair of a shape, on a connection.
func (e *endpoint) parameters(conf transport.QPConfig, s *stream) parameters {
	o := &e.dev.opts
	p := parameters{reads: conf.Reads, lanes: 1, recv: conf.RecvWR,
		checksum: wished(o.Checksum, s.LocalAddr(), s.RemoteAddr())}
	if o.keeps() && !s.lent {
		p.listens = e.listens(s)
		p.keeps = len(p.listens) > 0
	}
	if p.keeps {
		p.lanes = max(1, o.Lanes)
	}
	return p
}

// listens is where lanes can be made to: the addresses of the device's lanes, or else the one that it listens
// on.
func (e *endpoint) listens(s *stream) (list []netip.AddrPort) {
	at, err := netip.ParseAddrPort(e.listeners[0].Addr().String())
	if err != nil {
		return nil
	}
	for _, a := range e.dev.opts.Interfaces {
		list = append(list, netip.AddrPortFrom(a.Unmap(), at.Port()))
	}
	if len(list) > 0 {
		return list
	}
	if at.Addr().IsUnspecified() {
		if own, ok := s.LocalAddr().(*net.TCPAddr); ok {
			at = netip.AddrPortFrom(own.AddrPort().Addr(), at.Port())
		}
	}
	return []netip.AddrPort{netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())}
}

// negotiate is what follows from what both sides have said.
func (p parameters) negotiate(peer parameters) agreement {
	lanes := 1
	if p.keeps && peer.keeps {
		lanes = min(p.lanes, peer.lanes, maxLanes)
	}
	return agreement{
		reads: min(p.reads, peer.reads, maxReads), peerRecv: peer.recv, lanes: lanes,
		checksum: p.checksum || peer.checksum, keeps: p.keeps && peer.keeps, listens: peer.listens,
	}
}

// Checksum says when a device wishes a checksum in every frame. A connection has it if either side wishes it.
type Checksum = transport.Checksum

const (
	ChecksumAuto   = transport.ChecksumAuto   // where the two ends are not the same machine
	ChecksumAlways = transport.ChecksumAlways //
	ChecksumNever  = transport.ChecksumNever  // not of its own accord: the peer may still wish it
)

// wished tells whether a connection between two addresses is to have a checksum, as far as this side is
// asked.
func wished(c Checksum, local, remote net.Addr) bool {
	return c == ChecksumAlways || c == ChecksumAuto && !sameMachine(local, remote)
}
