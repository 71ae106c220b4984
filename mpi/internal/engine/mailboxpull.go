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

// In a schedule that pulls, the ranks read each other's buffers. Each of its rounds is one call of the
// mailboxes; the number of rounds is the same at all ranks. The payload of a message is the keys of the
// buffers that its sender exposes, which are registered for remote reads. A rank that aborts the schedule
// conceals its buffers first, which revokes the keys; a read counts only if the key is still valid after it,
// so nobody uses bytes of a buffer that its owner has reused. After the last round nobody reads. So a key may
// stay valid for the next call, which usually exposes the same memory: this saves a registration at both
// ends, and a cache miss at the reader.
const (
	keyBytes     = 8
	exposedBytes = 2 * keyBytes // for Input and Output

	// pullPiece is the number of bytes read before the engine's lock is released. Shorter pieces cost more:
	// the Go runtime's monitor looks at system calls in progress (docs/internals/adr/0022).
	pullPiece = 4 << 20

	// Buffers of the program of up to keptMost bytes stay registered for up to keptFor calls. Longer buffers
	// gain less. Each registration tells the provider how often memory is exposed, so that it moves it to
	// huge pages.
	keptMost = 64 << 10
	keptFor  = 16
)

// pullRounds executes a schedule that pulls.
func (cs *Collectives) pullRounds(c *Collective, m *Mailboxes) error {
	err := cs.expose(c, m)
	cached := m.hasStage() && !cs.stage.uncached // most likely at all ranks
	var speed copySpeed
	for buf, staged := range m.staged {
		if staged != nil && c.Schedule.Late>>buf&1 == 0 {
			cs.stage.write(staged, c.memory[buf], &speed)
		}
	}
	for ; err == nil && c.round < c.Schedule.Rounds(); c.round++ {
		if err = cs.exchangeInMailboxes(c, m); err != nil {
			c.round++ // which is counted
			break
		}
		steps := c.Schedule.Round(c.round)
		for i := c.step; i < len(steps) && err == nil; i++ {
			switch s := &steps[i]; s.Kind {
			case coll.Pull:
				began := sys.Ticks()
				err = cs.pull(c, m, s)
				speed.copied(s.Dst.Len, sys.Ticks()-began)
			case coll.Publish:
				if staged := m.staged[s.Src.Buf]; staged != nil {
					cs.stage.write(staged[s.Src.Off:], c.span(s.Src), &speed)
				}
			default:
				c.carryOut(s)
			}
		}
	}
	cs.e.mu.Lock()
	defer cs.e.mu.Unlock()
	if cached && err == nil {
		cs.stage.lines.note(speed)
	}
	cs.concealLocked(c, m, err)
	// If the ranks' calls differ, they have only the first round in common: count the others.
	if left := c.Schedule.Rounds() - c.round; err != nil && left > 0 {
		m.call += uint64(left)
		cs.giveUpInMailboxesLocked(m)
	}
	return err
}

// expose registers the buffers that the schedule lets others read.
func (cs *Collectives) expose(c *Collective, m *Mailboxes) (err error) {
	cs.e.mu.Lock()
	defer cs.e.mu.Unlock()
	if c.Schedule.Stages {
		cs.stage.lend(c, m)
	}
	for buf := range m.regions {
		key := transport.Key(0)
		if mem := c.memory[buf]; c.Schedule.Exposed>>buf&1 != 0 && len(mem) > 0 {
			if m.staged[buf] != nil {
				mem = m.staged[buf]
			}
			if key, err = m.keyOfLocked(buf, mem); err != nil {
				return err
			}
		}
		binary.LittleEndian.PutUint64(m.exposed[buf*keyBytes:], uint64(key))
	}
	return nil
}

// keyOfLocked returns the key of one of the call's buffers. It registers the buffer, unless it still is.
func (m *Mailboxes) keyOfLocked(buf int, mem []byte) (transport.Key, error) {
	m.e.mu.assertHeld()
	if mr := m.regions[buf]; mr != nil {
		if b := mr.Bytes(); len(b) == len(mem) && &b[0] == &mem[0] {
			return mr.Key(), nil
		}
		m.regions[buf] = nil
		if err := mr.Deregister(); err != nil {
			return 0, err
		}
	}
	mr, err := m.fabric.pd.Register(mem, transport.RemoteRead)
	if err != nil {
		return 0, err
	}
	m.regions[buf] = mr
	return mr.Key(), nil
}

// concealLocked undoes expose after a call that has ended with err.
func (cs *Collectives) concealLocked(c *Collective, m *Mailboxes, err error) {
	cs.e.mu.assertHeld()
	m.kept++
	for buf := range m.regions {
		if err != nil || m.staged[buf] != nil || c.pinned[buf] != nil || len(c.memory[buf]) > keptMost ||
			m.kept%keptFor == 0 {
			m.concealLocked(buf)
		}
	}
	cs.stage.takeBack(m)
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
	first := m.call - uint64(c.round)
	flag := atomic.LoadUint64(wordAt(b.in, m.slotEnd(first)))
	tag = int(flag >> 32)
	return tag, uint32(flag) == uint32(first) && tag != c.flagTag
}

// pull reads memory of a peer.
func (cs *Collectives) pull(c *Collective, m *Mailboxes, s *coll.Step) error {
	dst, at := c.span(s.Dst), uint64(s.Src.Off)
	for len(dst) > 0 {
		piece := dst[:min(len(dst), pullPiece)]
		cs.e.mu.Lock()
		err := m.readLocked(piece, s, at)
		cs.e.mu.Unlock()
		if err == transport.ErrNotNow {
			err = cs.pullLater(c, m, piece, s, at)
		}
		if err != nil {
			return err
		}
		dst, at = dst[len(piece):], at+uint64(len(piece))
	}
	return nil
}

// readLocked reads memory of a peer if that is possible at once. It returns transport.ErrNotNow if it may be
// possible later.
func (m *Mailboxes) readLocked(dst []byte, s *coll.Step, at uint64) error {
	m.e.mu.assertHeld()
	b := &m.peers[s.Peer]
	switch {
	case b.peer.state != peerOpen:
		return transport.ErrNotNow
	case b.keys[s.Src.Buf] == 0:
		return fmt.Errorf("%w: %s exposes no memory where this rank is to read %d bytes: the ranks' "+
			"arguments differ in length", ErrCount, rankName(s.Peer, b.peer.rank), s.Src.Len)
	}
	m.segment[0] = transport.Segment{Key: b.keys[s.Src.Buf], Offset: at, Length: uint64(len(dst))}
	err := b.peer.ch.QP().Get(dst, &m.segment[0])
	if errors.Is(err, syscall.ESRCH) { // it was alive when the mailboxes were set up
		return &PeerError{b.peer.rank, fmt.Errorf("%w: its process has ended", transport.ErrPeerLost)}
	}
	if err != nil && err != transport.ErrNotNow {
		err = fmt.Errorf("%w, whose buffer is at %s: %w; WEFT_COLL with another algorithm than pull "+
			"does without", errUnreadable, rankName(s.Peer, b.peer.rank), err)
	}
	return err
}

var errUnreadable = errors.New("memory cannot be read by another rank")

// pullAgain is the time between two tries of a read that is not possible at the moment: no event tells when
// it is.
const pullAgain = 10 * time.Millisecond

// pullLater retries a read until it succeeds. Either the peer has something to finish first, or it has
// aborted the collective, and this rank waits as for a message that does not arrive.
func (cs *Collectives) pullLater(c *Collective, m *Mailboxes, dst []byte, s *coll.Step,
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
				cs.e.Probes.Wake()
			}
		}
	}()
	cs.e.waiting.waitUntil(0, nil, func() bool {
		switch {
		case cs.e.stopped != nil:
			err = cs.e.stopped
		case c.Canceller.Err() != nil:
			err = c.Canceller.Err()
		default:
			if err = m.readLocked(dst, s, at); err != transport.ErrNotNow {
				return true
			}
			err = cs.interruptedLocked(c)
		}
		return err != nil
	})
	return err
}
