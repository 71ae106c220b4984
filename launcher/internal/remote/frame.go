// Package remote carries the agent interface over a byte stream, so that a launcher can run ranks on other
// hosts. On the launcher's side [Agent] stands for an agent that a starter, such as ssh, has started there;
// on the far side [Serve] connects the stream with the agent of that host. docs/internals/spec/agent.md
// describes the protocol.
package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// kind says what a frame carries.
type kind byte

const (
	kindPrepare kind = iota + 1 // launcher to agent
	kindStart
	kindHalt
	kindSignal
	kindRelease
	kindHangUp
	kindInput
	kindPause
	kindClose
	kindAlive // both ways
	kindStage
	kindAsk
	kindRecords
	kindFailed
	kindFound
	kindTellWaits
	kindRelay
	kindRelayData
	kindRelayStop
)

const (
	kindHello kind = iota + 65 // agent to launcher
	kindPrepared
	kindStarted
	kindNotStarted
	kindAllStarted
	kindExited
	kindStopped
	kindContinued
	kindOutput
	kindOutputEnd
	kindArrived
	kindPMIClosed
	kindInputTaken
	kindClosed
	kindStaged
	kindQuiet
	kindMoving
	kindAnswer
	kindSampled
	kindRecorded
	kindArtifact
	kindFind
	kindWaits
	kindAborts
	kindLostPeer
	kindDisturbs
	kindRelayed
	kindRelayEnd
)

// A frame is a length of 4 bytes, big endian, that counts what follows; a kind; and a body.
const headerLen = 4

// Limits on the length of a frame. An agent's frames are limited more strictly than a launcher's: a
// launcher's Start describes all ranks of the host.
const (
	maxEvent   = 1 << 20
	maxCommand = 64 << 20
)

var errProtocol = errors.New("agent protocol")

// appendFrame appends a frame whose body is the parts, one after the other.
func appendFrame(b []byte, k kind, parts ...[]byte) []byte {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = append(b, byte(k))
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// readFrame reads a frame of at most limit bytes. The body is the caller's.
func readFrame(r io.Reader, limit int) (kind, []byte, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n == 0 || n > uint32(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes; 1 to %d are allowed", errProtocol, n, limit)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind(body[0]), body[1:], nil
}
