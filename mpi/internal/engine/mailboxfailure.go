package engine

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// A rank whose collective fails because the ranks' calls do not fit together, or because it cannot read what
// it is to read, tells all others: none of them waits for it then. So it does not when its context has ended
// or a rank has failed, which the others learn by themselves or need not know. Nor does it in checking mode:
// who finds the difference reports it, and another rank's error could end the job before that.

// failureReport says of which calls that was, and why: the latest of them, how many there are before it in
// the same collective, and the kind of the error. 0 is none.
type failureReport uint64

// The kinds of errors that are told.
const (
	reportNone = iota
	reportCount
	reportCollective
	reportUnreadable

	reportKindBits   = 8
	reportBeforeBits = 8
	reportEnd        = mailboxLine - mailboxWord // of the word, before that of the acknowledgement
)

// reportOf is the notice of an error; 0 if it is not to be told.
func reportOf(first, last uint64, err error) failureReport {
	kind := reportNone
	switch {
	case errors.Is(err, errTold):
	case errors.Is(err, ErrCount):
		kind = reportCount
	case errors.Is(err, ErrCollective):
		kind = reportCollective
	case errors.Is(err, errUnreadable):
		kind = reportUnreadable
	}
	if kind == reportNone {
		return 0
	}
	return failureReport((last<<reportBeforeBits|(last-first))<<reportKindBits | uint64(kind))
}

// covers tells whether one of the calls from the first to the last is meant.
func (n failureReport) covers(first, last uint64) bool {
	theirs := uint64(n) >> reportKindBits
	its, before := theirs>>reportBeforeBits, theirs&(1<<reportBeforeBits-1)
	return n != 0 && first <= its && its-before <= last
}

// errTold marks the failure of a collective that another rank has told of.
var errTold = errors.New("as that rank found")

// err is the failure of a collective that another rank tells of, which is named.
func (n failureReport) err(rank string, o coll.Operation) error {
	switch n & (1<<reportKindBits - 1) {
	case reportCount:
		return fmt.Errorf("%w: %s gives %v up: another rank called it with another length, root or "+
			"element size: %w", ErrCount, rank, o, errTold)
	case reportUnreadable:
		return fmt.Errorf("%w: %s gives %v up: %w", errUnreadable, rank, o, errTold)
	}
	return fmt.Errorf("%w: %s gives %v up: %w", ErrCollective, rank, o, errTold)
}

// tellFailureLocked tells all others how the collective of the calls since the first has failed, if that is
// for them.
func (cs *Collectives) tellFailureLocked(m *Mailboxes, first uint64, err error) {
	cs.e.mu.assertHeld()
	if n := reportOf(first, m.call, err); n != 0 {
		m.report = n
		cs.oweLocked(m)
		cs.acknowledgeOwedLocked()
	}
}

// sendReportLocked tells a rank of the latest failure; false if that has to wait.
func (m *Mailboxes) sendReportLocked(b *mailbox) bool {
	m.e.mu.assertHeld()
	if b.reported != m.report && b.peer.state == peerOpen {
		if !m.writeLocked(b, reportEnd-mailboxWord, mailboxWord, nil, nil, uint64(m.report)) {
			return false
		}
		b.reported = m.report
	}
	return true
}

// Calls of which the ranks disagree whether they are for the mailboxes: a rank that waits for a message there
// finds another, which is no mailbox's; and one that has posted receives finds a message in a mailbox.

// sentOtherwiseLocked finds a message of the present call that has come to where no mailbox is.
func (cs *Collectives) sentOtherwiseLocked(c *Collective) error {
	cs.e.mu.assertHeld()
	if _, unexpected := cs.e.matching.Lengths(); unexpected == 0 {
		return nil
	}
	for i := range c.exchange {
		source := c.worldRank(c.exchange[i].Peer)
		msg := cs.e.matching.Probe(c.Context, int32(source), AnyTag)
		if msg != nil && c.sameCall(int(msg.Tag)) {
			return c.mismatch(source, int(msg.Tag), msg.Value.bytes)
		}
	}
	return nil
}

// checkBesideLocked has collectives fail whose messages do not go through mailboxes, but those of another
// rank do.
func (cs *Collectives) checkBesideLocked() {
	cs.e.mu.assertHeld()
	for _, c := range cs.beside {
		m := c.Beside
		for rank := range m.peers {
			b := &m.peers[rank]
			if b.in == nil {
				continue
			}
			flag := atomic.LoadUint64(wordAt(b.in, m.slotEnd(m.call+1)))
			tag, comes := int(flag>>32), uint32(flag) == uint32(m.call+1)
			if comes && c.sameMailboxCall(tag) && c.err == nil {
				cs.failLocked(c, c.mismatch(b.peer.rank, tag, unknownLength))
			}
		}
	}
}

// givenUpLocked is the failure of a call that another rank tells of; nil if none does.
func (m *Mailboxes) givenUpLocked(c *Collective) error {
	m.e.mu.assertHeld()
	for rank := range m.peers {
		b := &m.peers[rank]
		if b.in == nil {
			continue
		}
		n := failureReport(atomic.LoadUint64(wordAt(b.in, reportEnd)))
		if n != 0 && n.covers(m.call-uint64(c.round), m.call) {
			return n.err(rankName(rank, b.peer.rank), operationOf(c.Tag))
		}
	}
	return nil
}
