package channel

import "fmt"

const (
	lineSize = 64 // the unit of a ring: a cache line

	flagBytes   = 16 // head and tail of a message
	headerBytes = 8  // credit, kind
	overhead    = flagBytes + headerBytes

	// creditLines are left to CREDIT alone: four that may wait unread, one being sent, one to spare.
	creditLines = 6
	// controlLines are left to control messages, beside data.
	controlLines = 6

	minSlot, maxSlot = 128, 2048
	maxLines         = 1 << 12 // of a ring that a peer describes
)

// Config is the shape of the ring in which a rank receives.
type Config struct {
	SlotSize int // the most that one message takes, in bytes, flags included; a multiple of 64
	Slots    int // the ring has room for so many messages of that size
}

// Default has rings of 5 KiB: with the mirror for the other direction, page by page, 16 KiB of a rank's memory (E1).
var Default = Config{SlotSize: 640, Slots: 8}

func (c Config) lines() int { return c.SlotSize / lineSize * c.Slots }

// validate refuses a shape that could not work.
func (c Config) validate() error {
	if c.SlotSize < minSlot || c.SlotSize > maxSlot || c.SlotSize%lineSize != 0 {
		return fmt.Errorf("slot size %d: not a multiple of %d from %d to %d", c.SlotSize, lineSize, minSlot, maxSlot)
	}
	// One message of full size behind a skipped rest of nearly that size must fit beside the lines kept for control, while the peer
	// owes a quarter of the ring that it need not tell.
	slot := c.SlotSize / lineSize
	least := (2*slot + controlLines + creditLines) * 4 / 3
	if n := c.lines(); c.Slots < 1 || n < least || n > maxLines {
		return fmt.Errorf("%d slots of %d bytes: the ring has %d lines of %d bytes; it needs %d to %d", c.Slots, c.SlotSize, n,
			lineSize, least, maxLines)
	}
	return nil
}
