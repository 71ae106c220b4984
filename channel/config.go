package channel

import "fmt"

const (
	lineSize = 64 // the unit of a ring: a cache line

	flagBytes   = 16 // head and tail of a message
	headerBytes = 8  // credit, kind
	bodyAt      = 8 + headerBytes
	overhead    = flagBytes + headerBytes

	// creditLines are left to CREDIT alone. Five can wait unread at once, as credit.go shows; one is to spare.
	creditLines = 6
	// controlLines are left to control messages, beside data.
	controlLines = 6

	minSlot, maxSlot = 128, 2048
	maxRing          = 8 << 10 // bytes: two rings on each rank are the 16 KiB of E1
)

// Config is the shape of the ring in which a rank receives.
type Config struct {
	SlotSize int // the most that one message takes, in bytes, flags included; a multiple of 64 from 128 to 2048
	Slots    int // the ring has room for so many messages of that size; at most 8 KiB altogether
}

// Default has rings of 5 KiB: with the mirror for the other direction, page by page, 16 KiB of a rank's memory (E1).
var Default = Config{SlotSize: 640, Slots: 8}

func (c Config) slotLines() int { return c.SlotSize / lineSize }
func (c Config) lines() int     { return c.slotLines() * c.Slots }

// validate refuses a shape that could not work.
func (c Config) validate() error {
	if c.SlotSize < minSlot || c.SlotSize > maxSlot || c.SlotSize%lineSize != 0 {
		return fmt.Errorf("slot size %d: not a multiple of %d from %d to %d", c.SlotSize, lineSize, minSlot, maxSlot)
	}
	if c.Slots < 1 || c.Slots > maxRing/c.SlotSize {
		return fmt.Errorf("%d slots of %d bytes: a ring has 1 slot at least and %d bytes at most, which is %d of these", c.Slots,
			c.SlotSize, maxRing, maxRing/c.SlotSize)
	}
	if low, high := thresholds(c.lines(), c.slotLines()); low > high {
		return fmt.Errorf("%d slots of %d bytes: a message of full size might never find room; take more slots or smaller ones",
			c.Slots, c.SlotSize)
	}
	return nil
}
