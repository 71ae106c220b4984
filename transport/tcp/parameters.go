package tcp

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/weft-mpi/weft/transport"
)

// parameters are what each side says of itself in start-up, behind its proof in Request and in Accept. What the two then do
// follows from both by one rule, so that both come to the same.
type parameters struct {
	reads    int  // Reads of the other side that it answers at once
	lanes    int  // connections that it would join into one queue pair at most
	recv     int  // depth of its receive queue
	checksum bool // it wishes a CRC32C in every frame
}

// agreement is what two ends have agreed on, as one of them sees it.
type agreement struct {
	peerReads int  // Reads that the peer answers at once
	peerRecv  int  // depth of the peer's receive queue: more messages than that cannot be on their way
	lanes     int  // the smaller of both wishes
	checksum  bool // either side wishes it
}

const (
	parametersSize = 12
	parametersMost = 64 // with fields that a later version may add
	laneMost       = 1  // of one queue pair, so far
)

// The wishes for a checksum.
const (
	checksumNone   = 0
	checksumCRC32C = 1
)

// append writes the block: length of it (2 bytes), reads (2), lanes (2), checksum (1), reserved (1), receive queue (4).
func (p parameters) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, parametersSize)
	b = binary.LittleEndian.AppendUint16(b, uint16(p.reads))
	b = binary.LittleEndian.AppendUint16(b, uint16(p.lanes))
	wish := byte(checksumNone)
	if p.checksum {
		wish = checksumCRC32C
	}
	b = append(b, wish, 0)
	return binary.LittleEndian.AppendUint32(b, uint32(p.recv))
}

// parseParameters reads the block at the beginning of b and returns what is behind it. A longer block is of a later version: its first
// fields mean the same, and those behind them are not for us.
func parseParameters(b []byte) (p parameters, rest []byte, err error) {
	if len(b) < parametersSize {
		return p, nil, fmt.Errorf("%w: %d bytes of parameters", transport.ErrProtocol, len(b))
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n < parametersSize || n > parametersMost || n > len(b) {
		return p, nil, fmt.Errorf("%w: parameters of %d bytes, %d to %d are possible, and %d are there", transport.ErrProtocol, n,
			parametersSize, parametersMost, len(b))
	}
	p.reads = int(binary.LittleEndian.Uint16(b[2:]))
	p.lanes = int(binary.LittleEndian.Uint16(b[4:]))
	wish := b[6]
	p.recv = int(binary.LittleEndian.Uint32(b[8:]))
	switch {
	case wish > checksumCRC32C || b[7] != 0:
		return p, nil, fmt.Errorf("%w: parameters ask for checksum %d, %d, which is not known", transport.ErrProtocol, wish, b[7])
	case p.lanes < 1:
		return p, nil, fmt.Errorf("%w: parameters of no lane", transport.ErrProtocol)
	case p.recv < 1 || p.recv > maxDepth:
		return p, nil, fmt.Errorf("%w: parameters of a receive queue of depth %d; 1 to %d are possible", transport.ErrProtocol, p.recv,
			maxDepth)
	}
	p.checksum = wish == checksumCRC32C
	return p, b[n:], nil
}

// parameters are what this side says of itself for a queue pair of a shape, on a connection.
func (d *Device) parameters(conf transport.QPConfig, c net.Conn) parameters {
	return parameters{
		reads: maxReads, lanes: laneMost, recv: conf.RecvWR, checksum: d.opts.Checksum.wished(c.LocalAddr(), c.RemoteAddr()),
	}
}

// negotiate is what follows from what both sides have said.
func (p parameters) negotiate(peer parameters) agreement {
	return agreement{
		peerReads: min(peer.reads, maxReads), peerRecv: peer.recv, lanes: min(p.lanes, peer.lanes),
		checksum: p.checksum || peer.checksum,
	}
}
