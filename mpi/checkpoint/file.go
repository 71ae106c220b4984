package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// A file is a header, the checksum of the header, the state, and the checksum of the state, in little-endian
// order (docs/internals/spec/checkpoint.md).
const (
	magic      = "weftckp1"
	fixedSize  = 8 + 8 + 8 + 8 + 8 + 4 + 4 + 4 // up to what the state is of
	checksumOf = 4
	maxWhat    = 1000
	maxRanks   = 1 << 20
	maxHeader  = fixedSize + maxWhat + checksumOf
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// setID names a checkpoint, which is a set of files: one or two for each rank. No two calls of Save make the
// same.
type setID struct {
	Step int64
	Run  uint64 // random, and so another one for each set
	Size int    // how many ranks
}

// header is what a file says of itself.
type header struct {
	Set    setID
	Rank   int
	Before int64 // the step of the finished checkpoint before this one; none if there is none
	Length int64 // of the state
	What   string
}

// frame returns a file's parts: header, state, and checksum. The state is not copied.
func (h *header) frame(state []byte) [][]byte {
	b := make([]byte, 0, fixedSize+len(h.What)+checksumOf)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Set.Step))
	b = binary.LittleEndian.AppendUint64(b, h.Set.Run)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Before))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Length))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Rank))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Set.Size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.What)))
	b = append(b, h.What...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	tail := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(state, castagnoli))
	return [][]byte{b, state, tail}
}

// bytes is the length of the whole file.
func (h *header) bytes() int64 {
	return int64(fixedSize+len(h.What)+checksumOf) + h.Length + checksumOf
}

var errNoFile = errors.New("no file of a checkpoint")

// parseHeader reads the header at the beginning of b, and returns its length.
func parseHeader(b []byte) (h header, n int, err error) {
	if len(b) < fixedSize || !bytes.HasPrefix(b, []byte(magic)) {
		return h, 0, errNoFile
	}
	le := binary.LittleEndian
	what := le.Uint32(b[48:])
	if what > maxWhat || len(b) < fixedSize+int(what)+checksumOf {
		return h, 0, errNoFile
	}
	n = fixedSize + int(what)
	if crc32.Checksum(b[:n], castagnoli) != le.Uint32(b[n:]) {
		return h, 0, errors.New("the header's checksum is wrong")
	}
	rank, size := le.Uint32(b[40:]), le.Uint32(b[44:])
	h = header{
		Set:  setID{Step: int64(le.Uint64(b[8:])), Run: le.Uint64(b[16:]), Size: int(size)},
		Rank: int(rank), Before: int64(le.Uint64(b[24:])), Length: int64(le.Uint64(b[32:])),
		What: string(b[fixedSize:n]),
	}
	if h.Set.Step < 0 || h.Before < none || h.Length < 0 || h.Length > math.MaxInt64-maxHeader-checksumOf ||
		size > maxRanks || rank >= size {
		return header{}, 0, errors.New("the header makes no sense")
	}
	return h, n + checksumOf, nil
}

// parseFile reads a whole file. The state is a part of b.
func parseFile(b []byte) (h header, state []byte, err error) {
	h, n, err := parseHeader(b)
	if err != nil {
		return h, nil, err
	}
	if int64(len(b)) != h.bytes() {
		return h, nil, fmt.Errorf("%d bytes instead of %d", len(b), h.bytes())
	}
	state = b[n : len(b)-checksumOf]
	if crc32.Checksum(state, castagnoli) != binary.LittleEndian.Uint32(b[len(b)-checksumOf:]) {
		return h, nil, errors.New("the state's checksum is wrong")
	}
	return h, state, nil
}
