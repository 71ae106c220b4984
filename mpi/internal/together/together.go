// Package together has the common code of packages with collective calls: a separate communicator, and one
// error for all ranks.
package together

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/weft-mpi/weft/mpi"
)

// Dup is c.Dup, but fails at all ranks or at none: a rank at which Dup fails could not release the others
// from calls on a communicator that it does not have. It releases them from Dup by revoking c. The error
// includes purpose.
func Dup(c *mpi.Comm, purpose string) (*mpi.Comm, error) {
	comm, err := c.Dup()
	made := uint64(1)
	if err != nil {
		made = 0
		Leave(c, err)
	}
	all, agreed := c.Agree(made)
	if err == nil && agreed == nil && all == 1 {
		return comm, nil
	}
	if err == nil {
		// Dup has failed elsewhere, or a rank has failed since.
		if err = agreed; err == nil {
			err = fmt.Errorf("%w: another rank has no communicator for %s", mpi.ErrProcFailed, purpose)
		}
		err = errors.Join(err, comm.Free())
	}
	return nil, err
}

// Leave releases the other ranks of c from their calls when this one leaves its call because a rank has
// failed.
func Leave(c *mpi.Comm, err error) error {
	if errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrRevoked) {
		c.Revoke()
	}
	return err
}

// HostOf numbers the host of this rank by the first rank there.
func HostOf(c *mpi.Comm) (int, error) {
	shared, err := c.SplitShared()
	if err != nil {
		return 0, err
	}
	first := shared.Group().Translate([]int{0}, c.Group())
	return first[0], shared.Free()
}

// Error is an error that all ranks return because one of them, the lowest, has it.
type Error struct {
	Rank int
	text string // includes the rank, if there are others
	kind error  // the error that the one at Rank wraps; nil if it is not sent
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() error { return e.kind }

// sent is an Error as sent to other ranks.
type sent struct {
	Text  string
	Errno uint64
	Kind  int // index, or -1
}

// Agree returns the same error at all ranks if some rank has one: that of the lowest such rank. It wraps the
// same system error number, or the same one of kinds, which must be the same at all ranks.
func Agree(c *mpi.Comm, err error, kinds ...error) error {
	fine := int8(1)
	if err != nil {
		fine = 0
	}
	mine := []mpi.Loc[int8]{{Value: fine, Index: int64(c.Rank())}}
	if err := mpi.Allreduce(c, mpi.InPlace[mpi.Loc[int8]](), mine, mpi.MinLoc[int8]()); err != nil {
		return err
	}
	if mine[0].Value == 1 {
		return nil
	}
	first := int(mine[0].Index)
	s := sent{Kind: -1}
	if first == c.Rank() {
		s.Text = err.Error()
		var errno syscall.Errno
		if errors.As(err, &errno) {
			s.Errno = uint64(errno)
		}
		s.Kind = slices.IndexFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
	}
	s, failed := mpi.BcastValue(c, s, first)
	if failed != nil {
		return failed
	}
	e := &Error{Rank: first, text: s.Text}
	if c.Size() > 1 {
		e.text = fmt.Sprintf("rank %d: %s", first, s.Text)
	}
	switch {
	case first == c.Rank():
		e.kind = err
	case s.Kind >= 0:
		e.kind = kinds[s.Kind]
	case s.Errno != 0:
		e.kind = syscall.Errno(s.Errno)
	}
	return e
}
