package channel

import "github.com/weft-mpi/weft/internal/wordcopy"

// sendCredit sends a CREDIT in the line that was reserved.
func (c *Channel) sendCredit() error {
	s := &c.send
	if s.creditsEnd != s.sent {
		s.creditsFrom = s.sent
	}
	err := c.postCredit()
	s.creditsEnd = s.sent
	return err
}

func (c *Channel) postCredit() error {
	if c.peerMapped {
		s := &c.send
		header := headerWord(c.recv.consumed, credit, c.refuses, s.announcedEnd())
		wordcopy.Put(s.head[:], 0, headWord(s.generation, 0))
		wordcopy.Put(s.head[:], wordSize, header)
		if c.qp.WriteInline(s.nextLines(1), s.head[:bodyAt], nil, s.generation) {
			c.onPosted(1)
			return nil
		}
	}
	return c.post(credit, 0, 1, false)
}
