package bench

import (
	"fmt"
	"runtime/debug"

	"github.com/weft-mpi/weft/mpi"
)

// version is that of the tables, which parsers read.
const version = "0.1.0"

// heading prints what stands above the rows.
func (s *session) heading() {
	fmt.Fprintf(s.out, "\n# OSU-style weft MPI %s Test v%s\n", s.title, version)
	if s.data != "" {
		fmt.Fprintf(s.out, "# Datatype: %s.\n", s.data)
	}
	header := s.header
	if s.Full && s.full != "" {
		header = s.full
	}
	if s.Validate {
		header += fmt.Sprintf("%20s", "Validation")
	}
	fmt.Fprintln(s.out, header)
}

// row prints a size's line.
func (s *session) row(n int, c cell, iterations int, ok bool) {
	fmt.Fprintf(s.out, "%-10d%20.*f", n, s.Digits, c.value)
	s.rest(c, iterations, ok)
}

// rest ends a line with what was asked for beyond the figure.
func (s *session) rest(c cell, iterations int, ok bool) {
	if s.Full && s.full != "" {
		fmt.Fprintf(s.out, "%20.*f%20.*f%12d", s.Digits, c.min, s.Digits, c.max, iterations)
	}
	if s.Validate {
		verdict := "Pass"
		if !ok {
			verdict = "Fail"
		}
		fmt.Fprintf(s.out, "%20s", verdict)
	}
	fmt.Fprintln(s.out)
}

// iterations are those of a size, with the user's wishes heeded.
func (s *session) iterations(n int) (timed, warmup int) {
	timed, warmup = s.counts.of(n)
	if s.Iterations > 0 {
		timed = s.Iterations
	}
	if s.Warmup >= 0 {
		warmup = s.Warmup
	}
	return timed, warmup
}

// table measures every size.
func (s *session) table() error {
	low, high := s.sizes(s.Options)
	s.send, s.recv = s.buffers(high)
	// Nothing is allocated while it is measured, so there is nothing to collect but what came before.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	s.heading()
	for n := low; n <= high; n *= 2 {
		if err := mpi.Barrier(s.world); err != nil {
			return err
		}
		s.wrong = false
		c, err := s.cell(s, n)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", s.Name, n, err)
		}
		ok, err := s.agreed()
		if err != nil {
			return err
		}
		timed, _ := s.iterations(n)
		s.row(n, c, timed, ok)
		if !ok {
			return fmt.Errorf("%w: %s, %d bytes", ErrInvalid, s.Name, n)
		}
	}
	return nil
}

// buffers are as long as the largest size needs; gather takes a block of every rank.
func (s *session) buffers(high int) (send, recv []byte) {
	blocks := 1
	if s.Name == "gather" && s.world.Rank() == 0 {
		blocks = s.world.Size()
	}
	return make([]byte, high), make([]byte, high*blocks)
}

// agreed tells whether no rank has found anything wrong.
func (s *session) agreed() (bool, error) {
	if !s.Validate {
		return true, nil
	}
	wrong := []int32{0}
	if s.wrong {
		wrong[0] = 1
	}
	err := mpi.Allreduce(s.world, mpi.InPlace[int32](), wrong, mpi.Max[int32]())
	return wrong[0] == 0, err
}
