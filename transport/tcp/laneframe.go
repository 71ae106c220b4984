package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/lane"
)

// Over lanes three words stand behind a frame's header: the frame's number in the sequence of its direction (0 for a frame that does not
// count), the least number of the other direction that has not arrived, and a reference that lets the frame be placed whatever is missing
// before it. The header's field for the lane has the lane's number.
const (
	laneWords      = 24
	laneHeaderSize = headerSize + laneWords
)

// opLost tells which lanes its sender has closed, and what has arrived. It exists only over lanes.
const opLost = ops

const (
	lostHead      = 12 // versions (4 + 4), lanes (2), ranges (2)
	lostLane      = 2
	lostRange     = 8   // first and last number behind the acknowledged ones, 4 bytes each
	lanesLostMost = 256 // that can be told of at once
	lostMost      = lostHead + lostLane*lanesLostMost + lostRange*lane.HolesMost
)

// laneHeader is a header over lanes.
type laneHeader struct {
	header
	number uint64 // 0: it does not count
	ack    uint64

	// ref is, of a Write, the number of its first frame; of a ReadWrite its Read; of a ReadRequest or an Atomic how many came before it; of
	// a Terminate the number of the frame that was wrong.
	ref uint64
}

// counts tells whether frames of a kind have a number.
func (o op) counts() bool { return o != opReady && o != opAlive && o != opLost }

// putWords fills in, behind a header that stands in b, what lanes add to it.
func putWords(b []byte, number uint16, n, ack, ref uint64) {
	_ = b[laneHeaderSize-1]
	binary.LittleEndian.PutUint16(b[6:], number)
	binary.LittleEndian.PutUint64(b[headerSize:], n)
	binary.LittleEndian.PutUint64(b[headerSize+8:], ack)
	binary.LittleEndian.PutUint64(b[headerSize+16:], ref)
}

// parseLaneHeader reads a header of a lane and refuses what no weft sends.
func parseLaneHeader(b []byte, number uint16) (h laneHeader, err error) {
	_ = b[laneHeaderSize-1]
	if op(b[4]) == opLost && b[5] == flagLast && binary.LittleEndian.Uint16(b[6:]) == number {
		h.header = header{length: int(binary.LittleEndian.Uint32(b)), op: opLost, flags: flagLast}
		if h.length > lostMost {
			return h, fmt.Errorf("%w: Lost of %d bytes, at most %d", transport.ErrProtocol, h.length, lostMost)
		}
	} else if h.header, err = parseHeaderOf(b, number); err != nil {
		return h, err
	}
	h.number = binary.LittleEndian.Uint64(b[headerSize:])
	h.ack = binary.LittleEndian.Uint64(b[headerSize+8:])
	h.ref = binary.LittleEndian.Uint64(b[headerSize+16:])
	if h.op.counts() != (h.number != 0) {
		return h, fmt.Errorf("%w: %v with the number %d", transport.ErrProtocol, h.op, h.number)
	}
	return h, nil
}

var emptyLaneHeader [laneHeaderSize]byte

// appendLaneFrame appends a whole frame of a lane.
func appendLaneFrame(b []byte, h header, number uint16, n, ack, ref uint64, payload []byte, checked bool) []byte {
	at := len(b)
	h.length = len(payload)
	b = append(b, emptyLaneHeader[:]...)
	h.put(b[at:])
	putWords(b[at:], number, n, ack, ref)
	if !checked {
		return append(b, payload...)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
	if len(payload) > 0 {
		b = append(b, payload...)
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	}
	return b
}

// appendLost writes the payload of Lost. The ranges are behind ack, which the frame has too.
func appendLost(b []byte, t lane.Telling, ack uint64, ranges []lane.Range) []byte {
	closed := t.Closed[:min(len(t.Closed), lanesLostMost)]
	b = binary.LittleEndian.AppendUint32(b, t.Version)
	b = binary.LittleEndian.AppendUint32(b, t.Heard)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(closed)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(ranges)))
	for _, number := range closed {
		b = binary.LittleEndian.AppendUint16(b, number)
	}
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.From-ack))
		b = binary.LittleEndian.AppendUint32(b, uint32(r.To-ack))
	}
	return b
}

// parseLost reads it.
func parseLost(b []byte, ack uint64) (t lane.Telling, ranges []lane.Range, err error) {
	bad := fmt.Errorf("%w: Lost of %d bytes that do not fit together", transport.ErrProtocol, len(b))
	if len(b) < lostHead {
		return t, nil, bad
	}
	t.Version, t.Heard = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	closed, count := int(binary.LittleEndian.Uint16(b[8:])), int(binary.LittleEndian.Uint16(b[10:]))
	if len(b) != lostHead+closed*lostLane+count*lostRange {
		return t, nil, bad
	}
	b = b[lostHead:]
	for range closed {
		t.Closed = append(t.Closed, binary.LittleEndian.Uint16(b))
		b = b[lostLane:]
	}
	behind := uint64(0)
	for range count {
		from, to := uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:]))
		if from <= behind || to < from || to >= lane.Window {
			return t, nil, bad
		}
		behind = to
		ranges = append(ranges, lane.Range{From: ack + from, To: ack + to})
		b = b[lostRange:]
	}
	return t, ranges, nil
}
