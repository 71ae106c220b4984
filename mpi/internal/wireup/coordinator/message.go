package coordinator

import (
	"encoding/binary"
	"fmt"
)

// kind is the kind of a message.
type kind uint8

const (
	kindPut      kind = iota + 1 // to rank 0: store text under key
	kindGet                      // to rank 0: look up key
	kindBarrier                  // to rank 0: the sender waits in the barrier
	kindFarewell                 // to rank 0: the sender ends normally
	kindAbort                    // to rank 0: end the job with status number
	kindPeerLost                 // to rank 0: the sender has lost its peer number

	kindStart   // all have come: number share the receiver's kernel, text is the job's id, key an address
	kindDone    // the put or farewell is done; for a get, text is the value
	kindMissing // the key has no value
	kindRefused // the put is refused, text says why
	kindRelease // all ranks are in the barrier
	kindFailed  // the job cannot start, text says why
	kindAborted // rank has ended the job with status number, text says more
	kindLost    // rank is lost, text says how; the job ends

	kindState   // to rank 0: text is the next piece of the sender's frames of package snapshot
	kindAsk     // rank 0 sends command number of package snapshot
	kindWithout // rank is lost, text says how; the job goes on

	lastKind = kindWithout
)

// The limits of the protocol.
const (
	maxKey     = 64
	maxText    = 3072
	maxFrame   = 4096
	maxSpace   = 64 << 10 // bytes of keys and values that one rank may put
	headLength = 1 + 4 + 4 + 1
)

// A message is a message over a connection after its handshake.
type message struct {
	kind         kind
	rank, number uint32
	key, text    string
}

// format encodes a message. Key and text are within their limits.
func (m message) format() []byte {
	b := make([]byte, 0, headLength+len(m.key)+len(m.text))
	b = append(b, byte(m.kind))
	b = binary.BigEndian.AppendUint32(b, m.rank)
	b = binary.BigEndian.AppendUint32(b, m.number)
	b = append(b, byte(len(m.key)))
	b = append(b, m.key...)
	return append(b, m.text...)
}

// parse decodes a message.
func parse(b []byte) (m message, err error) {
	if len(b) < headLength {
		return m, fmt.Errorf("a message of %d bytes", len(b))
	}
	m.kind = kind(b[0])
	m.rank, m.number = binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:])
	n, rest := int(b[9]), b[headLength:]
	switch {
	case m.kind < kindPut || m.kind > lastKind:
		return m, fmt.Errorf("a message of the unknown kind %d", m.kind)
	case n > maxKey || n > len(rest):
		return m, fmt.Errorf("a key of %d bytes in a message of %d", n, len(b))
	case len(rest)-n > maxText:
		return m, fmt.Errorf("a text of %d bytes", len(rest)-n)
	}
	m.key, m.text = string(rest[:n]), string(rest[n:])
	return m, nil
}
