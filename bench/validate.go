package bench

// Validation fills what is sent with bytes that depend on the sender, the number of the message and the offset, and compares what
// is received with them.

func (s *session) fill(b []byte, source, sequence int) {
	if !s.Validate {
		return
	}
	x := pattern(source, sequence)
	for i := range b {
		b[i] = byte((x + uint64(i)*0x94d049bb133111eb) >> 32)
	}
}

func (s *session) compare(b []byte, source, sequence int) {
	if !s.Validate {
		return
	}
	x := pattern(source, sequence)
	for i := range b {
		if b[i] != byte((x+uint64(i)*0x94d049bb133111eb)>>32) {
			s.wrong = true
			return
		}
	}
}

func pattern(source, sequence int) uint64 {
	return uint64(source)*0x9e3779b97f4a7c15 + uint64(sequence)*0xbf58476d1ce4e5b9
}
