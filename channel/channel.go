package channel

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// State of a channel.
type State uint8

const (
	StateNew    State = iota // the receive ring is there, the peer is not; left by Open, Close or Fail
	StateOpen                // messages flow; left by Close or Fail
	StateClosed              // given back in order; final
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

// Channel is this rank's end of a virtual channel. Like the QP that it uses, it is driven by one goroutine at a time.
type Channel struct {
	qp    transport.QP
	state State
	recv  recvRing
	send  sendRing
	stats Stats

	pd    transport.PD
	shape Descriptor // of the receive ring
	err   error
}

// New makes the end of a channel that receives in a ring of the given shape; the zero Config is Default. The memory is
// registered with pd at once, so that its description can be given to the peer. Close or Fail gives it back.
func New(pd transport.PD, cfg Config) (*Channel, error) {
	if cfg == (Config{}) {
		cfg = Default
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	size := cfg.lines() * lineSize
	mr, err := pd.Alloc(size, transport.RemoteWrite)
	if err != nil {
		return nil, fmt.Errorf("receive ring of %d bytes: %w", size, err)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails: the program ends when the system has no random numbers
	c := &Channel{pd: pd, shape: Descriptor{
		SlotSize: cfg.SlotSize, Lines: cfg.lines(), Key: mr.Key(),
		Generation: binary.LittleEndian.Uint64(random[:]),
	}}
	c.recv.init(mr, c.shape)
	c.stats.Registered = len(mr.Bytes())
	return c, nil
}

// Descriptor is what the peer has to know, for its Open. It is the same each time; the slice is the caller's.
func (c *Channel) Descriptor() []byte { return c.shape.Append(nil) }

// Open connects the channel with its peer: qp reaches it, peer is its Descriptor. The memory of the mirror is registered now. An
// error leaves the channel as it was.
func (c *Channel) Open(qp transport.QP, peer []byte) error {
	if c.state != StateNew {
		return fmt.Errorf("%w: Open of a channel that is %v", transport.ErrState, c.state)
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

// Err is the cause that Fail was given; nil while the channel is well, and after Close.
func (c *Channel) Err() error { return c.err }

// Close ends the channel in order. The queue pair must be closed or released before, so that nothing is placed in the ring any
// more: its memory is given back, and a body that Next gave is gone.
func (c *Channel) Close() error { return c.end(StateClosed, nil) }

// Fail ends the channel for the given reason: nothing is sent or received any more. The queue pair must have been cut before, as
// for Close.
func (c *Channel) Fail(cause error) error { return c.end(StateFailed, cause) }

func (c *Channel) end(s State, cause error) error {
	if c.state == StateClosed || c.state == StateFailed {
		return nil
	}
	c.state, c.err = s, cause
	c.stats.Registered = 0
	err := c.recv.mr.Deregister()
	if c.send.mr != nil {
		err = errors.Join(err, c.send.mr.Deregister())
	}
	c.recv.ring, c.recv.current = nil, 0
	c.send.ring, c.send.reserved, c.send.maxBody = nil, 0, 0
	return err
}

// Stats are the counters of one end of a channel (E13).
type Stats struct {
	Registered  int    // bytes of registered buffers
	Sent        uint64 // messages, without SKIP and CREDIT
	Received    uint64 // messages released
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
