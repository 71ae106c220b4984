package channel

// shape is the geometry of a ring in a phase: the same for every rank that knows the phases.
type shape struct {
	phase int
	slot  int // bytes
	lines int
}

func geometry(phases []int, phase int) shape {
	slot := phases[phase]
	s := shape{phase, slot, max(RingSlots*linesIn(slot), minLines)}
	if slot <= maxSmall && phase == 0 {
		s.lines = min(s.lines, maxSmallLines)
	}
	return s
}

// maxSmallLines is the number of lines of a ring that, with the two other lines of its region, fills 8 KiB:
// two of them on each rank are the 16 KiB of E1.
const maxSmallLines = 8<<10/lineSize - extraLines

// linesIn returns the number of lines of a slot.
func linesIn(slot int) int { return (slot + lineSize - 1) / lineSize }

// region returns the size of a ring's region in bytes.
func (s shape) region() int { return (s.lines + extraLines) * lineSize }

// threshold returns how many lines may be unadvertised before a CREDIT must be sent.
func (s shape) threshold() int { return threshold(s.lines, linesIn(s.slot)) }

// body returns the largest body that a slot of this shape carries.
func (s shape) body() int { return s.slot - overhead }

// linesOf returns the number of lines of a message with a body of n bytes.
func linesOf(n int) int { return int(uint(n+overhead+lineSize-1) / lineSize) }
