package snapshot

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A rank and its launcher talk about the rank's state over a connection of their own, a descriptor that the
// rank inherits. The launcher sends bytes of value Ask, one for each snapshot that it wants, and of value
// AskSample, one for each sample. The rank sends frames: the length of what follows, 4 bytes, big endian; the
// kind, 1 byte; and the body.

// Variable is the environment variable that tells a rank the number of the descriptor.
const Variable = "WEFT_SNAPSHOT_FD"

// The bytes by which the launcher asks for a snapshot, and for a sample.
const (
	Ask       = 1
	AskSample = 2
)

// Kind is what a frame of a rank says.
type Kind byte

const (
	// Quiet: goroutines of the rank wait in calls of weft, and no message of the rank has moved for a while.
	// It is repeated when the number of these goroutines changes.
	Quiet   Kind = iota + 1
	Moving       // messages of the rank move again
	Answer       // the body is an encoded snapshot
	Sampled      // the body is an encoded sample
)

// AppendFrame appends a frame.
func AppendFrame(b []byte, k Kind, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(1+len(body)))
	return append(append(b, byte(k)), body...)
}

// ReadFrame reads a frame. It does not trust the writer.
func ReadFrame(r io.Reader) (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n, k := binary.BigEndian.Uint32(head[:]), Kind(head[4])
	switch {
	case k < Quiet || k > Sampled:
		return 0, nil, fmt.Errorf("a frame of kind %d", k)
	case n < 1 || n > 1+MaxSize || k != Answer && k != Sampled && n != 1:
		return 0, nil, fmt.Errorf("a frame of kind %d of %d bytes", k, n)
	}
	body := make([]byte, n-1)
	_, err := io.ReadFull(r, body)
	return k, body, err
}
