package engine

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// A rank whose collective fails because the ranks' calls differ, or because it cannot read a peer's memory,
// reports that to all others, so that they do not wait for it. It does not report the end of its
// context.Context, nor the failure of a rank, which the others detect themselves. With WEFT_CHECK=1 a rank
// first compares its call with its neighbors': if it differs, it describes the difference, and does not begin
// the collective.

// failureReport consists of the number of the latest exchange of the failed collective, the number of its
// exchanges before that one, and the kind of the error. 0 is none.
type failureReport uint64

// The kinds of errors that are reported.
const (
	reportNone = iota
	reportCount
	reportCollective
	reportUnreadable

	reportKindBits   = 8
	reportBeforeBits = 8
	reportBeforeMax  = 1<<reportBeforeBits - 1   // of a longer collective: nobody is that far behind
	reportEnd        = mailboxLine - mailboxWord // end of the report's word; the acknowledgement follows
)

// reportOf returns the report of an error; 0 if the error is not reported.
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
	before := min(last-first, reportBeforeMax)
	return failureReport((last<<reportBeforeBits|before)<<reportKindBits | uint64(kind))
}

// covers reports whether the report concerns one of the exchanges from first to last.
func (n failureReport) covers(first, last uint64) bool {
	theirs := uint64(n) >> reportKindBits
	its, before := theirs>>reportBeforeBits, theirs&reportBeforeMax
	return n != 0 && first <= its && its-before <= last
}

// errTold marks the failure of a collective that another rank has reported.
var errTold = errors.New("as that rank found")

// err returns the failure of a collective that another rank, which is named, has reported.
func (n failureReport) err(rank string, o coll.Operation) error {
	switch n & (1<<reportKindBits - 1) {
	case reportCount:
		return fmt.Errorf("%w: %s aborts %v: another rank called it with another length, root or "+
			"element size: %w", ErrCount, rank, o, errTold)
	case reportUnreadable:
		return fmt.Errorf("%w: %s aborts %v: %w", errUnreadable, rank, o, errTold)
	}
	return fmt.Errorf("%w: %s aborts %v: %w", ErrCollective, rank, o, errTold)
}

// tellFailureLocked reports to all others the failure of the collective whose first exchange is first, if its
// error is of a kind that is reported.
func (mc *MailboxCalls) tellFailureLocked(m *Mailboxes, first uint64, err error) {
	mc.e.mu.assertHeld()
	if n := reportOf(first, m.exchange, err); n != 0 {
		m.report = n
		mc.oweLocked(m)
		mc.acknowledgeOwedLocked()
	}
}

// sendReportLocked sends the latest report to a rank; false if it must be retried.
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

// If the ranks' calls differ, some may run through mailboxes and others not. A rank that waits at a mailbox
// then finds an unexpected message of the call, and a rank that has posted receives finds a message in a
// mailbox.

// sentOtherwiseLocked returns an error if a message of the current call has arrived outside the mailboxes.
func (mc *MailboxCalls) sentOtherwiseLocked(c *Collective) error {
	mc.e.mu.assertHeld()
	if _, unexpected := mc.e.matching.Lengths(); unexpected == 0 {
		return nil
	}
	for i := range c.exchange {
		source := c.worldRank(c.exchange[i].Peer)
		msg := mc.e.matching.Probe(c.Context, int32(source), AnyTag)
		if msg != nil && c.sameCall(int(msg.Tag)) {
			return c.mismatch(source, int(msg.Tag), msg.Value.bytes)
		}
	}
	return nil
}

// checkWatchedLocked fails the collectives that do not run through mailboxes if a message of the same call
// has arrived in one.
func (cs *Collectives) checkWatchedLocked() {
	cs.e.mu.assertHeld()
	for _, c := range cs.watching {
		m := c.WatchedMailboxes
		for rank := range m.peers {
			b := &m.peers[rank]
			if b.in == nil {
				continue
			}
			flag := atomic.LoadUint64(wordAt(b.in, m.slotEnd(m.exchange+1)))
			tag, comes := int(flag>>32), uint32(flag) == mailboxNumber(m.exchange+1)
			if comes && c.sameMailboxCall(tag) && c.err == nil {
				cs.failLocked(c, c.mismatch(b.peer.rank, tag, unknownLength))
			}
		}
	}
}

// givenUpLocked returns the failure of the current call that another rank has reported, or nil.
func (m *Mailboxes) givenUpLocked(c *Collective) error {
	m.e.mu.assertHeld()
	for rank := range m.peers {
		b := &m.peers[rank]
		if b.in == nil {
			continue
		}
		n := failureReport(atomic.LoadUint64(wordAt(b.in, reportEnd)))
		if n != 0 && n.covers(m.exchange-uint64(c.round), m.exchange) {
			return n.err(rankName(rank, b.peer.rank), operationOf(c.Tag))
		}
	}
	return nil
}
