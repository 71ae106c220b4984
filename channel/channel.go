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
	qp     transport.QP
	placer transport.Placer // qp, if a message can go straight to where it belongs
	near   bool             // in the peer's own memory
	answer uintptr          // for Answer
	state  State
	recv   recvRing
	send   sendRing
	quiet  quiet

	asking asking
	wanted int  // phase to ask for when it is the time; -1 for none
	paused bool // a question is wanted or open: nothing goes into the ring

	phases  []int
	refused int // the lowest phase that the peer has refused; one more than there are if none
	reply   reply
	holding bool // we want payload announced
	stats   Stats

	pd   transport.PD
	conf Config
	err  error
}

// New makes the end of a channel. The ring in which it receives is registered with pd at once, so that its description can be given to
// the peer. Close or Fail gives the memory back.
func New(pd transport.PD, conf Config) (*Channel, error) {
	if err := conf.Check(); err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	c := &Channel{pd: pd, conf: conf, phases: conf.phases(), wanted: -1}
	c.refused = len(c.phases)
	b, err := c.newBuffer(geometry(c.phases, 0), transport.RemoteWrite, true)
	if err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	c.recv.change(b, random())
	if conf.KeepSmall {
		c.recv.large, c.send.large = &largeIn{}, &largeOut{}
	}
	return c, nil
}

// random is 64 bits that nobody can guess, and not 0.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails: the program ends when the system has no random numbers
	return max(binary.LittleEndian.Uint64(b[:]), 1)
}

// Descriptor is what the peer has to know, for its Open. It describes the ring with which the channel begins; the slice is the
// caller's.
func (c *Channel) Descriptor() []byte {
	return Descriptor{Phases: c.phases, KeepSmall: c.conf.KeepSmall, Key: c.recv.buffer.Key(), Generation: c.recv.generation}.Append(nil)
}

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
	if !slices.Equal(d.Phases, c.phases) {
		return fmt.Errorf("%w: the peer's phases are %v, ours %v: all ranks of a job need the same", transport.ErrInvalid, d.Phases,
			c.phases)
	}
	if d.KeepSmall != c.conf.KeepSmall {
		return fmt.Errorf("%w: the peer's channels keep the small ring: %t, ours: %t: all ranks of a job need the same", transport.ErrInvalid,
			d.KeepSmall, c.conf.KeepSmall)
	}
	b, err := c.newBuffer(geometry(c.phases, 0), transport.LocalWrite, true)
	if err != nil {
		return err
	}
	c.send.change(b, answer{key: d.Key, generation: d.Generation}, c.conf.limit(0, c.phases[0]))
	c.qp, c.state = qp, StateOpen
	if c.placer, _ = qp.(transport.Placer); c.placer != nil {
		c.near = c.placer.Shared()
		c.send.abreast = c.near && c.conf.Abreast
		c.send.narrow = c.send.abreast
	}
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
	err := errors.Join(c.recv.buffer.drop(), c.send.mirror.drop(), c.asking.mirror.drop(), c.asking.land.drop())
	if c.conf.KeepSmall {
		err = errors.Join(err, c.recv.large.buffer.drop(), c.send.large.mirror.drop())
		c.recv.large.change(nil, 0)
		c.send.large.change(nil, answer{})
		c.recv.owed = 0
	}
	c.asking, c.reply, c.wanted, c.paused = asking{}, reply{}, -1, false
	c.recv.ring, c.recv.current, c.recv.expected = nil, 0, expected{}
	c.send.ring, c.send.reserved, c.send.clear, c.send.again, c.send.maxBody, c.send.most, c.send.limit = nil, 0, 0, 0, 0, 0, 0
	return err
}

// Hold tells the peer whether to announce payload from now on and keep it, or to send it again. It hears of it with the next message that
// goes there; until then payload may come.
func (c *Channel) Hold(on bool) { c.holding = on }

// Held tells whether the peer wants payload announced.
func (c *Channel) Held() bool { return c.send.hold }

// Phase is the phase in which this end sends, 0 being the first.
func (c *Channel) Phase() int { return c.send.phase }

// Paused tells whether nothing can be sent until Progress or Settled has gone on: the channel is changing its phase, and the answer of the peer
// has to come; or a message that was committed is out, and what tells the peer of it found the send queue full.
func (c *Channel) Paused() bool { return c.paused }

// pause has nothing but CREDIT and the question itself go into the ring until paused is false again.
func (c *Channel) pause() { c.paused, c.send.clear, c.send.again = true, 0, 0 }

// linesOf is how many lines a message with a body of n bytes takes.
func linesOf(n int) int { return int(uint(n+overhead+lineSize-1) / lineSize) }
