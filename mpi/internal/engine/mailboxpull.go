package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport"
)

// A schedule that pulls, or pushes, has one exchange for each of its rounds, the same number at all ranks.
// The payload of its messages is not the schedule's: it is the keys of the memory that the sender exposes. A
// rank that gives up the schedule invalidates its keys before its call returns. A read counts only if the key
// is still valid afterwards, so nobody uses bytes that the owner has reused, and invalidating a key waits for
// writers. After the last round nobody reads or writes any more. So a key may stay valid for the next call,
// which most often exposes the same memory: this spares both ends a registration, and the reader a cache miss
// in the table.
const (
	keyBytes     = 8
	exposedBytes = 2 * keyBytes // for Input and Output

	// pullPiece is the number of bytes read before the engine's lock is released. Shorter pieces cost more:
	// each read takes 2 µs before the first byte (docs/internals/adr/0022).
	pullPiece = 4 << 20

	// Buffers of the program of up to keptMost bytes stay registered for up to keptFor calls. Longer buffers
	// gain less. Each registration tells the provider how often memory is exposed, so that it moves it to
	// huge pages.
	keptMost = 32 << 10
	keptFor  = 16
)

// pullRounds executes a schedule that pulls.
func (mc *MailboxCalls) pullRounds(c *Collective, m *Mailboxes) error {
	err := mc.expose(c, m)
	cached := m.hasStage() && !mc.stage.uncached // most likely at all ranks
	var speed copySpeed
	for buf, staged := range m.staged {
		if staged != nil && c.Schedule.Late>>buf&1 == 0 {
			mc.stage.write(staged, c.memory[buf], &speed)
		}
	}
	for ; err == nil && c.round < c.Schedule.Rounds(); c.round++ {
		if err = mc.exchange(c, m); err != nil {
			c.round++ // which is counted
			break
		}
		steps := c.Schedule.Round(c.round)
		for i := c.step; i < len(steps) && err == nil; i++ {
			switch s := &steps[i]; s.Kind {
			case coll.Pull:
				began := sys.Ticks()
				err = mc.reach(c, m, s)
				speed.copied(s.Dst.Len, sys.Ticks()-began)
			case coll.Push:
				err = mc.reach(c, m, s)
			case coll.Publish:
				if staged := m.staged[s.Src.Buf]; staged != nil {
					mc.stage.write(staged[s.Src.Off:], c.span(s.Src), &speed)
				}
			default:
				c.carryOut(s)
			}
		}
	}
	mc.e.mu.Lock()
	defer mc.e.mu.Unlock()
	if cached && err == nil {
		mc.stage.lines.note(speed)
	}
	mc.concealLocked(c, m, err)
	if err != nil {
		mc.passOverLocked(c, m)
	}
	return err
}

// expose registers the buffers that the schedule lets others read.
func (mc *MailboxCalls) expose(c *Collective, m *Mailboxes) (err error) {
	mc.e.mu.Lock()
	defer mc.e.mu.Unlock()
	if c.Schedule.Stages {
		mc.stage.lend(c, m)
	}
	for buf := range m.regions {
		key := transport.Key(0)
		if mem := c.memory[buf]; c.Schedule.Exposed>>buf&1 != 0 && len(mem) > 0 {
			if m.staged[buf] != nil {
				mem = m.staged[buf]
			}
			if key, err = m.keyOfLocked(buf, mem, c.Schedule.Written>>buf&1 != 0); err != nil {
				return err
			}
		}
		binary.LittleEndian.PutUint64(m.exposed[buf*keyBytes:], uint64(key))
	}
	return nil
}

// keyOfLocked registers memory as one of the call's buffers, to which others may write, unless that is what
// was kept.
func (m *Mailboxes) keyOfLocked(buf int, mem []byte, written bool) (transport.Key, error) {
	m.e.mu.assertHeld()
	if mr := m.regions[buf]; mr != nil {
		if b := mr.Bytes(); m.written[buf] == written && len(b) == len(mem) && &b[0] == &mem[0] {
			return mr.Key(), nil
		}
		m.regions[buf] = nil
		if err := mr.Deregister(); err != nil {
			return 0, err
		}
	}
	rights := transport.RemoteRead
	if written {
		rights |= transport.LocalWrite | transport.RemoteWrite
	}
	mr, err := m.fabric.pd.Register(mem, rights)
	if err != nil {
		return 0, err
	}
	m.regions[buf], m.written[buf] = mr, written
	return mr.Key(), nil
}

// concealLocked undoes expose after a call that has ended with err.
func (mc *MailboxCalls) concealLocked(c *Collective, m *Mailboxes, err error) {
	mc.e.mu.assertHeld()
	m.pullCalls++
	for buf := range m.regions {
		if err != nil || m.staged[buf] != nil || c.pinned[buf] != nil || len(c.memory[buf]) > keptMost ||
			m.pullCalls%keptFor == 0 {
			m.concealLocked(buf)
		}
	}
	mc.stage.takeBack(m)
}

// concealLocked deregisters a buffer, if it is registered.
func (m *Mailboxes) concealLocked(buf int) {
	m.e.mu.assertHeld()
	mr := m.regions[buf]
	if mr == nil {
		return
	}
	m.regions[buf] = nil
	if err := mr.Deregister(); err != nil {
		m.e.failLocked(err)
	}
}

// payload returns the payload of a message.
func (c *Collective) payload(m *Mailboxes, s *coll.Step) []byte {
	if c.Schedule.Pulls {
		return m.exposed[:]
	}
	return c.span(s.Src)
}

// takeKeys stores the keys in the payload of a message.
func (b *mailbox) takeKeys(payload []byte) {
	for buf := range b.keys {
		b.keys[buf] = transport.Key(binary.LittleEndian.Uint64(payload[buf*keyBytes:]))
	}
}

// differedBeforeLocked reports whether a message of the first round, which nobody may have read, belonged to
// another collective: its sender will not reach this round.
func (m *Mailboxes) differedBeforeLocked(b *mailbox, c *Collective) (tag int, differs bool) {
	if c.round == 0 {
		return 0, false
	}
	first := m.exchange - uint64(c.round)
	flag := atomic.LoadUint64(wordAt(b.in, m.slotEnd(first)))
	tag = int(flag >> 32)
	return tag, uint32(flag) == mailboxNumber(first) && tag != c.flagTag
}

// reach carries out a Pull or a Push.
func (mc *MailboxCalls) reach(c *Collective, m *Mailboxes, s *coll.Step) error {
	mine, theirs := s.Dst, s.Src
	if s.Kind == coll.Push {
		mine, theirs = theirs, mine
	}
	mem, at := c.span(mine), uint64(theirs.Off)
	for len(mem) > 0 {
		piece := mem[:min(len(mem), pullPiece)]
		mc.e.mu.Lock()
		err := m.reachLocked(piece, s, theirs.Buf, at)
		mc.e.mu.Unlock()
		if err == transport.ErrNotNow {
			err = mc.reachLater(c, m, piece, s, theirs.Buf, at)
		}
		if err != nil {
			return err
		}
		mem, at = mem[len(piece):], at+uint64(len(piece))
	}
	return nil
}

// reachLocked reads a peer's buffer from a position on, or writes there, if that can be done at once;
// transport.ErrNotNow if it may be later.
func (m *Mailboxes) reachLocked(mine []byte, s *coll.Step, buf coll.Buffer, at uint64) (err error) {
	m.e.mu.assertHeld()
	b := &m.peers[s.Peer]
	switch {
	case b.peer.state != peerOpen:
		return transport.ErrNotNow
	case b.keys[buf] == 0:
		return fmt.Errorf("%w: %s exposes no memory where this rank is to copy %d bytes: the ranks' "+
			"arguments differ in length", ErrCount, rankName(s.Peer, b.peer.rank), len(mine))
	}
	m.segment[0] = transport.Segment{Key: b.keys[buf], Offset: at, Length: uint64(len(mine))}
	if s.Kind == coll.Push {
		err = b.peer.ch.QP().Put(mine, &m.segment[0])
	} else {
		err = b.peer.ch.QP().Get(mine, &m.segment[0])
	}
	if errors.Is(err, syscall.ESRCH) { // it could be read when the ranks agreed on that
		m.e.hub.failed.foundUnnamed() // its connection has yet to end
		return &PeerError{b.peer.rank, fmt.Errorf("%w: its process has ended", transport.ErrPeerLost)}
	}
	if err != nil && err != transport.ErrNotNow {
		err = fmt.Errorf("%w, whose buffer is at %s: %w; WEFT_COLL with another algorithm than pull "+
			"does without", errUnreadable, rankName(s.Peer, b.peer.rank), err)
	}
	return err
}

var errUnreadable = errors.New("memory cannot be reached by another rank")

// pullAgain is the time between two attempts to access memory that cannot be accessed at the moment: nothing
// signals when it can.
const pullAgain = 10 * time.Millisecond

// reachLater reads or writes what could not be reached at once: the peer has still to carry out something; or
// it has given the collective up, and this rank waits as for a message that does not come.
func (mc *MailboxCalls) reachLater(c *Collective, m *Mailboxes, mine []byte, s *coll.Step, buf coll.Buffer,
	at uint64) (err error) {
	over := make(chan struct{})
	defer close(over)
	go func() {
		again := time.NewTicker(pullAgain)
		defer again.Stop()
		for {
			select {
			case <-over:
				return
			case <-again.C:
				mc.e.Probes.Wake()
			}
		}
	}()
	mc.e.waiting.waitUntil(0, nil, func() bool {
		switch {
		case mc.e.stopped != nil:
			err = mc.e.stopped
		case c.Canceller.Err() != nil:
			err = c.Canceller.Err()
		default:
			if err = m.reachLocked(mine, s, buf, at); err != transport.ErrNotNow {
				return true
			}
			err = mc.interruptedLocked(c)
		}
		return err != nil
	})
	return err
}
