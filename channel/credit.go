package channel

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Lines are counted from the beginning of the channel, modulo 2^32. Every message carries the count of lines that its sender has
// consumed in the other direction. Where no message goes that way a CREDIT goes by itself once a number of lines, the threshold,
// is owed, or once a lap has begun behind one that ended early and of which not all has been told. That nobody ever waits for ever rests on both, given that both
// sides go on calling Next:
//
//   - CREDITs need little room. Let a rank post CREDITs c1 … ck while it learns of nothing newer than c1 being consumed. Between
//     c1 and ck it has consumed a threshold of lines for each but one. Its peer sent them without having seen c2, for what
//     the peer sends after that says so; so they are no more than the ring has. With 5 thresholds to more than a ring there are 5 at
//     most, and the one for a lap: the lap behind that cannot begin before the peer has seen it. So k is 6, and the lines left to CREDIT alone are enough.
//   - What is owed and not told stops nobody. A peer whose message waits though all lines are consumed lacks fewer than a
//     threshold of them. The message takes at most a slot, what a full lap leaves out at the end of the ring is less than one, and some
//     lines stay free behind it. (Of a lap that ended earlier all has been told.)
//
// A CREDIT that goes sooner than it must (early) goes like data.
//
// When a direction changes its ring the counts go on, and the answer tells all that was consumed of the old one. A question is asked only
// when less than a threshold is owed to the one who asks. Then no CREDIT of its peer is unread but perhaps one for a lap, which it reads before it can be behind another one for a lap of the new
// ring: so all of them have the lines that are kept for them. It comes to that by itself: whoever wants to ask stops sending, and is told.
//
// thresholds gives the least and the greatest that keep both, for a ring and a slot of so many lines; none if low is above high.
func thresholds(lines, slot int) (low, high int) {
	return lines/5 + 1, lines - (2*slot - 1) - controlLines - creditLines + 1
}

// threshold is what a rank uses: a quarter of the ring, unless the slots are so large that it must be less.
func threshold(lines, slot int) int {
	low, high := thresholds(lines, slot)
	return max(low, min(high, lines/4))
}

// Progress does what is due: it hears an answer, gives one, sends the CREDIT that is owed. It tells whether something is due that cannot
// go now: call it again after the next pass. A message that is reserved and not committed must be reserved again. An error is of the
// queue pair, which is broken then, or of the peer.
func (c *Channel) Progress() (owing bool, err error) {
	if c.state != StateOpen {
		return false, nil
	}
	if err := c.settle(); err != nil {
		return false, err
	}
	if c.reply.due {
		if err := c.sayReply(); err != nil {
			return false, err
		}
	}
	owing = c.reply.due || c.asking.state == askAgain || c.wanted >= 0 || c.send.markerDue()
	behind, keep := c.recv.behind(), 0
	if !behind && !c.early() {
		return owing, nil
	}
	if !behind {
		keep = dataKeeps
	}
	if c.asking.state != askNothing || c.send.markerDue() || !c.send.seat(1, keep) {
		return owing || behind, nil
	}
	c.send.reserved = 0 // its lines are the CREDIT's
	err = c.sayCredit()
	switch {
	case err == nil:
		c.stats.Credits++
		return owing, nil
	case errors.Is(err, transport.ErrQueueFull):
		return true, nil
	}
	return false, err
}

// sayCredit sends a CREDIT in the line that is free.
func (c *Channel) sayCredit() error {
	if c.near {
		s := &c.send
		to := &s.remote[0]
		to.Offset, to.Length = s.base+uint64(s.pos*lineSize), lineSize
		if c.placer.Place(to, transport.Head{A: headWord(s.generation, 0), B: headerWord(c.recv.consumed, credit, c.holding, s.before())}, nil, s.generation) {
			c.advanced(1)
			return nil
		}
	}
	return c.post(credit, 0, 1, false)
}

// Owing tells whether Progress has something to do.
func (c *Channel) Owing() bool {
	return c.Behind() || c.paused || c.wanted >= 0 || c.reply.due
}

// Behind tells whether that is a CREDIT.
func (c *Channel) Behind() bool { return c.recv.behind() || c.early() }

// Pressing tells whether Progress has something to do that the peer may be waiting for.
func (c *Channel) Pressing() bool {
	r := &c.recv
	return int(r.consumed-r.told) >= r.lines/2 || r.due || c.early() || c.paused || c.reply.due || r.owed > 0 && r.owed >= r.large.threshold
}

// Relieve hears what has come, up to the next message of the layer above. It tells whether the peer has given credit back with it, and whether there is
// such a message, behind which nothing is heard: Next gives it all the same. After an error the channel must be failed.
func (c *Channel) Relieve() (given, blocked bool, err error) {
	freed := c.send.freed
	_, _, blocked, err = c.Next()
	return c.send.freed != freed, blocked, err
}

// credited takes the peer's count of lines consumed. Behind an answer, which told more, messages may come that were sent before it.
func (s *sendRing) credited(count uint32) error {
	switch {
	case count-s.freed <= s.sent-s.freed:
		s.freed, s.late = count, false
		return nil
	case s.late && int32(count-s.freed) < 0:
		return nil
	}
	return fmt.Errorf("%w: credit up to line %d, where %d were free and %d sent", transport.ErrProtocol, count, s.freed, s.sent)
}
