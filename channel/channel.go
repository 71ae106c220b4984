package channel

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/transport"
)

// State of a channel.
type State uint8

const (
	StateNew    State = iota // the receive ring exists, and no peer is known; left by Open, Close or Fail
	StateOpen                // messages flow; left by Close or Fail
	StateClosed              // closed in order; final
	StateFailed              // the peer is gone, or broke a rule; final
)

func (s State) String() string {
	switch s {
	case StateNew:
		return "new"
	case StateOpen:
		return "open"
	case StateClosed:
		return "closed"
	case StateFailed:
		return "failed"
	}
	return "unknown state"
}

// Channel is this rank's end of a virtual channel. Like its QP, it must be driven by one goroutine at a time.
type Channel struct {
	qp           transport.QP
	inlineWrites bool    // qp can write a small message inline
	peerMapped   bool    // inline writes store directly into the peer's memory
	prefetchAddr uintptr // for PrefetchAddr
	state        State
	recv         recvRing
	send         sendRing
	resizer
	reply replier

	refusal

	phases []int
	stats  Stats

	memory memory
	conf   Config
	err    error
}

// New makes one end of a channel. It registers the receive ring with pd at once, so that the ring's
// descriptor can be given to the peer. Close or Fail releases the memory.
func New(pd transport.PD, conf Config) (*Channel, error) {
	if err := conf.Check(); err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	if attr := pd.DeviceAttr(); !attr.TailLast {
		return nil, fmt.Errorf("channel: %w: provider %q does not place the last bytes of a Write last "+
			"(DeviceAttr.TailLast), and messages are found by these bytes", transport.ErrInvalid,
			attr.Provider)
	}
	c := &Channel{conf: conf, phases: conf.phases()}
	c.memory = memory{pd: pd, conf: &c.conf}
	c.resizer = resizer{c: c, wantedPhase: -1, refusedPhase: len(c.phases)}
	c.reply.c, c.refusal.c = c, c
	b, err := c.memory.alloc(geometry(c.phases, 0), ringRights, true)
	if err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	c.recv.change(b, random())
	if conf.KeepSmall {
		c.recv.large, c.send.large = &largeRecvRing{}, &largeSendRing{}
	}
	return c, nil
}

// random returns 64 random bits, not 0.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails: the program ends when the system has no random numbers
	return max(binary.LittleEndian.Uint64(b[:]), 1)
}

// Descriptor returns what the peer needs for its Open. It describes the ring with which the channel begins.
// The slice belongs to the caller.
func (c *Channel) Descriptor() []byte {
	return Descriptor{Phases: c.phases, KeepSmall: c.conf.KeepSmall, Key: c.recv.buffer.Key(),
		Generation: c.recv.generation}.Append(nil)
}

// Open connects the channel with its peer, which qp reaches and whose Descriptor is peer. It registers the
// memory of the mirror. After an error the channel is as before.
func (c *Channel) Open(qp transport.QP, peer []byte) error {
	if c.state != StateNew {
		return fmt.Errorf("%w: Open of a channel that is %v", transport.ErrState, c.state)
	}
	d, err := ParseDescriptor(peer)
	if err != nil {
		return err
	}
	if !slices.Equal(d.Phases, c.phases) {
		return fmt.Errorf("%w: the peer's phases are %v, ours %v: all ranks of a job need the same",
			transport.ErrInvalid, d.Phases, c.phases)
	}
	if d.KeepSmall != c.conf.KeepSmall {
		return fmt.Errorf("%w: the peer's channels keep the small ring: %t, ours: %t: "+
			"all ranks of a job need the same", transport.ErrInvalid, d.KeepSmall, c.conf.KeepSmall)
	}
	b, err := c.memory.alloc(geometry(c.phases, 0), transport.LocalWrite, true)
	if err != nil {
		return err
	}
	c.send.change(b, resizeReply{key: d.Key, generation: d.Generation}, c.conf.limit(0, c.phases[0]))
	c.qp, c.state = qp, StateOpen
	attr := c.memory.pd.DeviceAttr()
	c.inlineWrites, c.peerMapped = attr.InlineWrites, attr.InlineWrites && attr.PeerMapped
	c.send.bothPolling = c.peerMapped && c.conf.BusyPolling
	c.send.windowed = c.send.bothPolling
	return nil
}

// QP returns the queue pair that Open was given; nil before Open.
func (c *Channel) QP() transport.QP { return c.qp }

// State returns the channel's state.
func (c *Channel) State() State { return c.state }

// Err returns the cause that Fail was given; nil while the channel works, and after Close.
func (c *Channel) Err() error { return c.err }

// Close ends the channel in order. The queue pair must have been closed or released, so that nothing is
// placed in the ring any more: Close releases the ring's memory, and a body that Next returned becomes
// invalid.
func (c *Channel) Close() error { return c.end(StateClosed, nil) }

// Fail ends the channel for the given reason: nothing is sent or received any more. The queue pair must have
// been cut before, as for Close.
func (c *Channel) Fail(cause error) error { return c.end(StateFailed, cause) }

func (c *Channel) end(final State, cause error) error {
	if c.state == StateClosed || c.state == StateFailed {
		return nil
	}
	c.state, c.err = final, cause
	err := errors.Join(c.recv.buffer.drop(), c.send.mirror.drop(), c.pending.mirror.drop(),
		c.pending.replySlot.drop())
	if c.conf.KeepSmall {
		err = errors.Join(err, c.recv.large.buffer.drop(), c.send.large.mirror.drop())
		c.recv.large.change(nil, 0)
		c.send.large.change(nil, resizeReply{})
		c.recv.largeUnadvertised = 0
	}
	c.pending, c.reply, c.wantedPhase, c.paused = pendingRequest{}, replier{c: c}, -1, false
	c.recv.ring, c.recv.current, c.recv.expected = nil, 0, expected{}
	s := &c.send
	s.ring, s.reserved, s.freeAhead, s.freeAfterWrap = nil, 0, 0, 0
	s.maxBody, s.maxAnyBody, s.maxElement, s.maxInline = 0, 0, 0, 0
	return err
}

// Phase returns the phase in which this end sends, 0 being the first.
func (c *Channel) Phase() int { return c.send.phase }
