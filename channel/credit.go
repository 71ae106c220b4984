package channel

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Lines are counted from the opening of the channel, modulo 2^32. Every message carries the count of lines
// that its sender has consumed in the other direction. If no message goes that way, a separate CREDIT is sent
// once a number of lines, the threshold, is unadvertised, or once a wrap has started after one that ended
// early and is not completely advertised. docs/internals/spec/channel.md proves that nobody waits forever as
// long as both sides call Next: a CREDIT always finds room in its reserved lines, and unadvertised credit
// blocks nobody.
//
// thresholds returns the bounds of a threshold that ensures both, for a ring and a slot with these numbers of
// lines. There is none if low is above high.
func thresholds(lines, slot int) (low, high int) {
	return lines/5 + 1, lines - (2*slot - 1) - controlLines - creditLines + 1
}

// threshold returns the threshold that weft uses: a quarter of the ring, unless large slots require less.
func threshold(lines, slot int) int {
	low, high := thresholds(lines, slot)
	return max(low, min(high, lines/4))
}

// PollCredits processes what the peer has sent, up to the next message of the layer above. It reports whether
// the peer has returned credit (given), and whether such a message has arrived (blocked). Credit after that
// message has not been processed, and Next still returns the message. After an error the channel must be
// failed.
func (c *Channel) PollCredits() (given, blocked bool, err error) {
	credited := c.send.credited
	_, _, blocked, err = c.Next()
	return c.send.credited != credited, blocked, err
}

// onCredit handles the peer's count of consumed lines. After a resize reply, which implied a higher count,
// messages may arrive that were sent before it.
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
