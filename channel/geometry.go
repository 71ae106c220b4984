package channel

// shape is the geometry of a ring in some phase: the same for every rank that knows the phases.
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

// maxSmallLines is a ring that, with the two other lines of its region, fills 8 KiB: two of them on each rank
// are the 16 KiB of E1.
const maxSmallLines = 8<<10/lineSize - extraLines

// linesIn is how many lines a slot takes.
func linesIn(slot int) int { return (slot + lineSize - 1) / lineSize }

// region is the size of the memory with a ring, in bytes.
func (s shape) region() int { return (s.lines + extraLines) * lineSize }

// threshold is how many lines may be unadvertised before a CREDIT must go.
func (s shape) threshold() int { return threshold(s.lines, linesIn(s.slot)) }

// body is the largest body that a slot of this shape carries.
func (s shape) body() int { return s.slot - overhead }

// linesOf is how many lines a message with a body of n bytes takes.
func linesOf(n int) int { return int(uint(n+overhead+lineSize-1) / lineSize) }
