package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// Validation fills messages with bytes that depend on the sender, the number of the message and the offset,
// and compares the received bytes with them, while the clock is stopped. Rewriting only fills.

// pattern fills b with the bytes of a source's message number sequence.
func pattern(b []byte, source, sequence int) {
	x := uint64(source)*0xd6e8feb86659fd93 + uint64(sequence)*0xa0761d6478bd642f
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, mix(x))
		b = b[8:]
		x += 0x9e3779b97f4a7c15
	}
	for z := mix(x); len(b) > 0; z >>= 8 {
		b[0] = byte(z)
		b = b[1:]
	}
}

// mix is the output function of the splitmix64 generator, so that neither neighbors nor messages resemble
// each other.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// refills reports whether the send buffer is written before every iteration.
func (s *session) refills() bool { return s.Validate || s.Rewrite }

// compare records the first byte of got that differs from want.
func (s *session) compare(got, want []byte, source, sequence int) {
	if s.wrong != nil || bytes.Equal(got, want) {
		return
	}
	for i := range got {
		if got[i] != want[i] {
			s.wrong = fmt.Errorf("%w: %s, %d bytes: rank %d got message %d of rank %d with %#02x in "+
				"place of %#02x at offset %d",
				ErrInvalid, s.Name, len(got), s.world.Rank(), sequence, source, got[i], want[i], i)
			return
		}
	}
}

// compareMessage compares all of a message.
func (s *session) compareMessage(got []byte, source, sequence int) {
	want := s.want[:len(got)]
	pattern(want, source, sequence)
	s.compare(got, want, source, sequence)
}

// fillFloats fills in with small integers, the bytes of the pattern, whose sums are exact in any order.
func (s *session) fillFloats(in []float32, sequence int) {
	b := s.want[:len(in)]
	s.pattern(b, s.world.Rank(), sequence)
	for k := range in {
		in[k] = float32(b[k])
	}
}

// compareSum records the first wrong sum over the ranks from 0 on. got begins with element first of the
// vector.
func (s *session) compareSum(got []float32, first, ranks, sequence int) {
	if s.wrong != nil {
		return
	}
	want, b := floats(s.sums)[:first+len(got)], s.want[:first+len(got)]
	clear(want)
	for r := range ranks {
		pattern(b, r, sequence)
		for k := range want {
			want[k] += float32(b[k])
		}
	}
	for k := range got {
		if got[k] != want[first+k] {
			s.wrong = fmt.Errorf("%w: %s, %d bytes: rank %d got the sum %v in place of %v at element %d "+
				"of call %d",
				ErrInvalid, s.Name, 4*len(got), s.world.Rank(), got[k], want[first+k], first+k, sequence)
			return
		}
	}
}

// allRight reports whether no rank has found anything wrong.
func (s *session) allRight() (bool, error) {
	if !s.Validate {
		return true, nil
	}
	wrong := []int32{0}
	if s.wrong != nil {
		wrong[0] = 1
	}
	err := mpi.Allreduce(s.world, mpi.InPlace[int32](), wrong, mpi.Max[int32]())
	return wrong[0] == 0, err
}
