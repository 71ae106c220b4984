package copycost

// Samples has what copies of one kind take, from samples of those that a process makes anyway. The least of a
// window of samples counts: whatever else goes on makes a copy longer, none shorter. Each window replaces the
// one before, so changes are followed both ways.
type Samples struct {
	copies  uint32 // so far
	samples uint32 // in the present window
	least   int64  // of them, for each KiB
	value   int64  // of the last whole window; 0 before
}

const (
	window        = 4  // samples
	interval      = 64 // copies of which one is sampled, after the first window
	intervalTried = 4  // the same while a Takeover is tried
	// MinSample is the shortest copy that is sampled.
	MinSample = 4 << 10
	// MinRingSample is the shortest copy into a ring that is.
	MinRingSample = 1 << 10
)

// Known returns samples of copies that are known to take so long for each KiB.
func Known(each int64) Samples { return Samples{value: each} }

// Due reports whether the next copy is to be sampled.
func (s *Samples) Due() bool { return s.dueOf(interval) }

// DueFor is Due of a copy into a ring, about which t decides.
func (s *Samples) DueFor(t *Takeover) bool { return s.dueOf(t.each()) }

// dueOf reports whether the next copy is to be sampled, as one of so many.
func (s *Samples) dueOf(each uint32) bool {
	s.copies++
	return s.value == 0 && s.copies < window*interval || s.copies%each == 0
}

// Note notes a sample: how long a copy took, in any unit. It reports whether a window has ended, and with it
// the value changed.
func (s *Samples) Note(t int64, bytes int) bool {
	if t <= 0 || bytes <= 0 {
		return false
	}
	if each := max(1, t*1024/int64(bytes)); s.samples == 0 || each < s.least {
		s.least = each
	}
	if s.samples++; s.samples < window {
		return false
	}
	s.value, s.samples = s.least, 0
	return true
}

// KiB returns what a copy takes for each KiB; 0 if it is not known.
func (s *Samples) KiB() int64 { return s.value }

// Exploration decides which messages go through mapped memory only so that there are samples: the first ones,
// and now and then one.
type Exploration uint32

// Next reports whether the next message should.
func (e *Exploration) Next() bool {
	*e++
	return *e <= 2*window || *e%(8*interval) == 0
}
