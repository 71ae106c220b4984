package channel

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Kind says what a message is.
type Kind uint8

const (
	skip   Kind = iota + 1 // the rest of the ring is left out; never seen outside
	credit                 // nothing but the credit that every message carries; never seen outside
	Eager                  // a whole message of the layer above (package eager)
	RTS                    // a message announced (package rendezvous)
	kinds
)

func (k Kind) String() string {
	switch k {
	case skip:
		return "SKIP"
	case credit:
		return "CREDIT"
	case Eager:
		return "EAGER"
	case RTS:
		return "RTS"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// State of a channel.
type State uint8

const (
	StateNew    State = iota // the receive ring is there, the peer is not; left by Open
	StateOpen                // messages flow; left by Fail
	StateFailed              // the peer is gone; final
)

func (s State) String() string {
	switch s {
	case StateNew:
		return "new"
	case StateOpen:
		return "open"
	case StateFailed:
		return "failed"
	}
	return "unknown state"
}

// Channel is this rank's end of a virtual channel. Like the QP that it uses, it is driven by one goroutine at a time.
type Channel struct {
	pd    transport.PD
	qp    transport.QP
	state State
	err   error

	recv recvRing
	send sendRing

	stats Stats
}

// New makes the end of a channel that receives in a ring of the given shape; the zero Config is Default. The memory is
// registered with pd at once, so that its description can be given to the peer.
func New(pd transport.PD, c Config) (*Channel, error) {
	if c == (Config{}) {
		c = Default
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	var base [8]byte
	if _, err := rand.Read(base[:]); err != nil {
		return nil, err
	}
	mr, err := pd.Alloc(c.lines()*lineSize, transport.RemoteWrite)
	if err != nil {
		return nil, fmt.Errorf("receive ring of %d bytes: %w", c.lines()*lineSize, err)
	}
	ch := &Channel{pd: pd}
	ch.recv.init(mr, c, binary.LittleEndian.Uint64(base[:]))
	ch.stats.Registered = len(mr.Bytes())
	return ch, nil
}

// Descriptor is what the peer has to know, for its Open.
func (c *Channel) Descriptor() []byte {
	return Descriptor{
		SlotSize: c.recv.slot, Lines: c.recv.lines, Key: c.recv.mr.Key(), Generation: c.recv.first,
	}.Append(nil)
}

// Open connects the channel with its peer: qp reaches it, peer is its Descriptor. An error leaves the channel as it was.
func (c *Channel) Open(qp transport.QP, peer []byte) error {
	if c.state != StateNew {
		return fmt.Errorf("channel is %v", c.state)
	}
	d, err := ParseDescriptor(peer)
	if err != nil {
		return err
	}
	mr, err := c.pd.Alloc(d.Lines*lineSize, transport.LocalWrite)
	if err != nil {
		return fmt.Errorf("send ring of %d bytes: %w", d.Lines*lineSize, err)
	}
	c.send.init(mr, d)
	c.stats.Registered += len(mr.Bytes())
	c.qp, c.state = qp, StateOpen
	return nil
}

// QP is the queue pair that Open was given; nil before.
func (c *Channel) QP() transport.QP { return c.qp }

// State tells where the channel is in its life.
func (c *Channel) State() State { return c.state }

// Fail ends the channel: the peer is gone for the given reason, nothing is sent or received any more. The queue pair must have been
// cut before, so that nothing is placed in the ring any more; its memory is given back.
func (c *Channel) Fail(cause error) error {
	if c.state == StateFailed {
		return nil
	}
	c.state, c.err = StateFailed, cause
	c.stats.Registered = 0
	err := c.recv.mr.Deregister()
	if c.send.mr != nil {
		err = errors.Join(err, c.send.mr.Deregister())
	}
	c.recv.ring, c.send.ring = nil, nil
	return err
}

// Stats are the counters of one end of a channel (E13).
type Stats struct {
	Registered  int    // bytes of registered buffers
	Sent        uint64 // messages, without SKIP and CREDIT
	Received    uint64
	SentBytes   uint64 // bodies
	RecvBytes   uint64
	Credits     uint64 // CREDITs sent
	Stalls      uint64 // Reserves that found no room
	HeadsNoTail uint64 // polls that found a head and no tail
}

// Stats returns the counters as they stand.
func (c *Channel) Stats() Stats { return c.stats }

// linesOf is how many lines a message with a body of n bytes takes.
func linesOf(n int) int { return (n + overhead + lineSize - 1) / lineSize }

// A head word is 24 bits of body length below 40 bits that follow from the lap's generation and the length. So neither an older flag
// nor payload can be taken for it (docs/adr/0003), and neither can a word of which a part is still the old one: a provider
// need not place a word as a whole.
const (
	lengthBits = 24
	lengthMask = 1<<lengthBits - 1
	headMix    = 0x9e3779b97f4a7c15 // odd, with ones all over
)

func headWord(generation uint64, n int) uint64 {
	return (generation+uint64(n)*headMix)<<lengthBits | uint64(n)
}
