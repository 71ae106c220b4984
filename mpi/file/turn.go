package file

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/together"
)

// ErrOverlap says that two ranks of one WriteAll, or one rank twice, write to the same byte.
var ErrOverlap = errors.New("regions overlap")

// ErrHole says that an element is in a hole of the file, see [File.RefuseHoles].
var ErrHole = errors.New("nothing was ever written there")

// ErrShrunk says that the file became shorter while it was read.
var ErrShrunk = errors.New("the file shrinks")

// kinds are the errors that other ranks find in what one rank reports, besides those of the system.
var kinds = []error{ErrOverlap, ErrHole, ErrShrunk, mpi.ErrCount, mpi.ErrType, mpi.ErrArg, os.ErrClosed,
	os.ErrInvalid, io.ErrShortWrite}

// turn is one of the collective calls on a File, which take place one after the other, in the order in which
// they began.
type turn struct {
	before *turn
	done   chan struct{}
}

// begin takes the next turn.
func (f *File) begin(op string) (*turn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fmt.Errorf("file: %s %s: %w", op, f.name, os.ErrClosed)
	}
	f.latest = &turn{before: f.latest, done: make(chan struct{})}
	return f.latest, nil
}

// wait returns when the calls before this one are over.
func (t *turn) wait() {
	if t.before != nil {
		<-t.before.done
		t.before = nil
	}
}

// run makes a collective call. The body returns what has failed at this rank, which has not kept it from its
// part in the communication, and the error that has.
func (f *File) run(op string, body func() (failed, err error)) error {
	t, err := f.begin(op)
	if err != nil {
		return err
	}
	defer close(t.done)
	t.wait()
	failed, err := body()
	return f.finish(op, failed, err)
}

// What ranks agree on at the end of a call.
const (
	allFine      = 1 << iota // nothing has failed
	allConnected             // communication has not failed
)

// finish ends a collective call: it returns the same error at all ranks if anything has failed at one.
func (f *File) finish(op string, failed, err error) error {
	flags := uint64(allFine | allConnected)
	switch {
	case err != nil:
		flags = 0
		f.comm.Revoke() // others may wait for what this rank does not send
	case failed != nil:
		flags = allConnected
	}
	all, agreed := f.comm.Agree(flags)
	switch {
	case agreed == nil && all&allFine != 0:
		return nil
	case agreed == nil && all&allConnected != 0:
		err = together.Agree(f.comm, failed, kinds...)
	case errors.Is(agreed, mpi.ErrProcFailed):
		f.comm.Revoke()
		err = fmt.Errorf("ranks %v have failed: %w", f.lost(), mpi.ErrProcFailed)
	case agreed != nil:
		f.comm.Revoke()
		err = agreed
	case err == nil:
		err = fmt.Errorf("another rank has left the call: %w", mpi.ErrRevoked)
	}
	return fmt.Errorf("file: %s %s: %w", op, f.name, err)
}

// lost lists the ranks of whose failure any rank knows: the same at all ranks.
func (f *File) lost() []int {
	known := make([]uint64, (f.comm.Size()+63)/64)
	for _, rank := range f.comm.Failed() {
		known[rank/64] |= 1 << (rank % 64)
	}
	var list []int
	for i, bits := range known {
		fine, _ := f.comm.Agree(^bits) // which says again that ranks have failed
		for bit := range 64 {
			if fine&(1<<bit) == 0 {
				list = append(list, i*64+bit)
			}
		}
	}
	return list
}
