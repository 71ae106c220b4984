package snapshot

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A rank and its launcher exchange the rank's state over a separate connection, a descriptor that the rank
// inherits. The launcher sends a byte for each request, a byte of value Taken when it has a whole artifact,
// and a byte of value Failed with the number of a rank, 4 bytes, big endian, when that rank has failed and
// the job goes on. The rank sends frames: the length of the rest, 4 bytes, big endian; the kind, 1 byte; and
// the body.

// The first byte of the launcher's commands.
const (
	Ask       = 1 // asks for a snapshot
	AskSample = 2 // asks for a sample
	Failed    = 3 // a rank has failed
	AskStacks = 4 // asks for the stacks of all goroutines, as an artifact
	Taken     = 5 // the launcher has a whole artifact
	HandOver  = 6 // asks for the artifacts so far: a signal follows that may end the rank
)

// AppendFailed appends the command for a failed rank.
func AppendFailed(b []byte, rank int) []byte {
	return binary.BigEndian.AppendUint32(append(b, Failed), uint32(rank))
}

// NextCommand cuts the launcher's first command off b. It reports false if the command is not complete. The
// rank is that of Failed. It returns an error for a byte that no launcher sends.
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

// Kind is the kind of a rank's frame.
type Kind byte

const (
	// Quiet: goroutines of the rank wait in calls of weft, and no message of the rank has moved for a while.
	// It is repeated when the number of these goroutines changes.
	Quiet   Kind = iota + 1
	Moving       // messages of the rank move again
	Answer       // the body is an encoded snapshot
	Sampled      // the body is an encoded sample
	// ArtifactPart: the body is the artifact's kind, 1 byte; whether this is the last part, 1 byte; and the
	// part.
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

// parseHead checks the beginning of a frame, and returns the length of its body.
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

// Artifact is a kind of artifact, that is, of a result that a rank leaves with its launcher.
type Artifact byte

const (
	Profile   Artifact = iota + 1 // in pprof's format
	CallSites                     // an encoded list of CallSite
	Stacks                        // of all goroutines, as runtime.Stack writes them
	Trace                         // as encoded by package trace
	Artifacts                     // one more than the last
)

// MaxArtifact bounds an artifact, in bytes.
const MaxArtifact = 64 << 20
