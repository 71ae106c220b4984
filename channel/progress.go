package channel

import (
	"errors"

	"github.com/weft-mpi/weft/transport"
)

// Due says whether Progress has something to do, and how urgent that is.
type Due uint8

const (
	// DueNothing: there is nothing to do.
	DueNothing Due = iota
	// DueSoon: a CREDIT that the next message may carry, or a resize request that waits for its turn. It can
	// wait until the caller next drives all its peers.
	DueSoon
	// DueNow: credit or a resize reply that the peer may be waiting for, or a resize request that credits
	// allow now: as soon as a stream goes on they will not.
	DueNow
	// DueResize: nothing can be sent before a call of Progress. The channel is changing its phase, or a
	// message in the large ring still lacks its LARGE message (large.go).
	DueResize
)

// Due reports what Progress has to do.
func (c *Channel) Due() Due {
	r := &c.recv
	unadvertised := int(r.consumed - r.advertised)
	switch {
	case c.paused:
		return DueResize
	case unadvertised >= r.lines/2 || r.creditDue || r.largeCreditDue() || c.reply.unsent ||
		c.creditAdvisable() || c.wantedPhase >= 0 && c.creditsAllowRequest():
		return DueNow
	case unadvertised >= r.threshold || c.wantedPhase >= 0:
		return DueSoon
	}
	return DueNothing
}

// CreditMayBeDue reports whether Due might be more than DueNothing after a TryRecv. It is a cheap part of
// Due, for a receiver that is waiting.
func (c *Channel) CreditMayBeDue() bool {
	r := &c.recv
	return r.creditDue || int(r.consumed-r.advertised) >= r.leastDue
}

// Progress does what is due: it applies a resize reply, sends one, and sends the CREDIT that is owed. again
// means that something found no room: call Progress again when the send queue or the credits have changed. A
// message that is reserved and not committed must be reserved again. An error comes from the queue pair,
// which is then broken, or from the peer.
func (c *Channel) Progress() (again bool, err error) {
	if c.state != StateOpen {
		return false, nil
	}
	if err := c.progressResize(); err != nil {
		return false, err
	}
	if c.reply.unsent {
		if err := c.reply.send(); err != nil {
			return false, err
		}
	}
	again = c.reply.unsent || c.pending.state == requestRetransmitDue || c.wantedPhase >= 0 ||
		c.send.descriptorUnsent()
	must, keep := c.recv.owesCredit(), 0
	if !must {
		if !c.creditAdvisable() {
			return again, nil
		}
		keep = dataReserve
	}
	if c.pending.state != requestNone || c.send.descriptorUnsent() || !c.send.reserveLines(1, keep) {
		return again || must, nil
	}
	c.send.reserved = 0 // the CREDIT uses its lines
	err = c.sendCredit()
	switch {
	case err == nil:
		c.stats.Credits++
		return again, nil
	case errors.Is(err, transport.ErrQueueFull):
		return true, nil
	}
	return false, err
}
