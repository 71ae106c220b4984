package snapshot

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A rank and its launcher talk about the rank's state over a connection of their own, a descriptor that the
// rank inherits. The launcher sends a byte for each thing that it asks for, a byte of value Taken when it has
// a whole artifact, and a byte of value Failed with the number of a rank, 4 bytes, big endian, when that rank
// has failed and the job goes on. The rank sends frames: the length of what follows, 4 bytes, big endian; the
// kind, 1 byte; and the body.

// The first byte of what the launcher sends.
const (
	Ask       = 1 // asks for a snapshot
	AskSample = 2 // asks for a sample
	Failed    = 3 // tells that a rank has failed
	AskStacks = 4 // asks for the stacks of all goroutines, as an artifact
	Taken     = 5 // tells that a whole artifact has been taken
	HandOver  = 6 // asks for what has been measured so far: a signal comes next that may end the rank
)

// AppendFailed appends what tells of a failed rank.
func AppendFailed(b []byte, rank int) []byte {
	return binary.BigEndian.AppendUint32(append(b, Failed), uint32(rank))
}

// NextCommand cuts the first thing that the launcher has said off b. It reports false if it is not complete.
// The rank is that of Failed. An error is of a byte that no launcher sends.
func NextCommand(b []byte) (command byte, rank int, rest []byte, ok bool, err error) {
	switch {
	case len(b) == 0:
		return 0, 0, b, false, nil
	case b[0] == Ask || b[0] == AskSample || b[0] == AskStacks || b[0] == Taken || b[0] == HandOver:
		return b[0], 0, b[1:], true, nil
	case b[0] != Failed:
		return 0, 0, b, false, fmt.Errorf("a command %d", b[0])
	case len(b) < 5:
		return 0, 0, b, false, nil
	}
	return Failed, int(binary.BigEndian.Uint32(b[1:])), b[5:], true, nil
}

// Kind is what a frame of a rank says.
type Kind byte

const (
	// Quiet: goroutines of the rank wait in calls of weft, and no message of the rank has moved for a while.
	// It is repeated when the number of these goroutines changes.
	Quiet   Kind = iota + 1
	Moving       // messages of the rank move again
	Answer       // the body is an encoded snapshot
	Sampled      // the body is an encoded sample
	// ArtifactPart: the body is which artifact it is a part of, 1 byte; whether it is the last part, 1 byte;
	// and the part.
	ArtifactPart
	Measures   // the rank answers HandOver
	HandedOver // the answer, after the artifacts
)

// AppendFrame appends a frame.
func AppendFrame(b []byte, k Kind, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(1+len(body)))
	return append(append(b, byte(k)), body...)
}

const frameHead = 5

// ReadFrame reads a frame. It does not trust the writer.
func ReadFrame(r io.Reader) (Kind, []byte, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	k, n, err := parseHead(head[:])
	if err != nil {
		return 0, nil, err
	}
	body := make([]byte, n)
	_, err = io.ReadFull(r, body)
	return k, body, err
}

// NextFrame cuts the first frame off b. It reports false if it is not complete. It does not trust the writer.
func NextFrame(b []byte) (k Kind, body, rest []byte, ok bool, err error) {
	if len(b) < frameHead {
		return 0, nil, b, false, nil
	}
	k, n, err := parseHead(b)
	if err != nil || len(b)-frameHead < n {
		return 0, nil, b, false, err
	}
	return k, b[frameHead : frameHead+n], b[frameHead+n:], true, nil
}

// parseHead checks the beginning of a frame, and gives how long its body is.
func parseHead(head []byte) (k Kind, body int, err error) {
	n, k := binary.BigEndian.Uint32(head), Kind(head[4])
	switch {
	case k < Quiet || k > HandedOver:
		return 0, 0, fmt.Errorf("a frame of kind %d", k)
	case n < 1 || n > 1+MaxSize || (k < Answer || k > ArtifactPart) && n != 1,
		k == ArtifactPart && n < 3:
		return 0, 0, fmt.Errorf("a frame of kind %d of %d bytes", k, n)
	}
	return k, int(n - 1), nil
}

// Artifact says what a rank leaves with its launcher.
type Artifact byte

const (
	Profile   Artifact = iota + 1 // in pprof's format
	CallSites                     // an encoded list of CallSite
	Stacks                        // of all goroutines, as runtime.Stack writes them
	Trace                         // what package trace encodes
	Artifacts                     // one more than the last
)

// MaxArtifact bounds an artifact, in bytes.
const MaxArtifact = 64 << 20
