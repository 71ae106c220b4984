package channel

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Lines are counted from the opening of the channel, modulo 2^32. Every message carries the count of lines
// that its sender has consumed in the other direction. Where no message goes that way a CREDIT goes by itself
// once a number of lines, the threshold, is unadvertised, or once a wrap has started after one that ended
// early and of which not all is advertised. docs/internals/spec/channel.md proves that nobody waits for ever
// as long as both sides go on calling Next: a CREDIT always finds room in the lines that are left to it, and
// credit that is not advertised stops nobody.
//
// thresholds gives the bounds within which a threshold keeps both, for a ring and a slot of so many lines;
// none if low is above high.
func thresholds(lines, slot int) (low, high int) {
	return lines/5 + 1, lines - (2*slot - 1) - controlLines - creditLines + 1
}

// threshold is what weft uses: a quarter of the ring, unless the slots are so large that it must be less.
func threshold(lines, slot int) int {
	low, high := thresholds(lines, slot)
	return max(low, min(high, lines/4))
}

// PollCredits processes what the peer has sent, up to the next message of the layer above. It reports whether
// the peer has returned credit with it (given), and whether such a message is there (blocked). No credit
// after that message has been seen, and Next still returns the message. After an error the channel must be
// failed.
func (c *Channel) PollCredits() (given, blocked bool, err error) {
	credited := c.send.credited
	_, _, blocked, err = c.Next()
	return c.send.credited != credited, blocked, err
}

// onCredit takes the peer's count of lines consumed. After a resize reply, which told more, messages may come
// that were sent before it.
func (s *sendRing) onCredit(count uint32) error {
	switch {
	case count-s.credited <= s.sent-s.credited:
		s.credited, s.staleCreditOK = count, false
		return nil
	case s.staleCreditOK && int32(count-s.credited) < 0:
		return nil
	}
	return fmt.Errorf("%w: credit up to line %d, where %d were free and %d sent", transport.ErrProtocol,
		count, s.credited, s.sent)
}
