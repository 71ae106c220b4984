package main

import (
	"errors"

	"github.com/weft-mpi/weft/mpi"
)

// survive solves the problem on the ranks of a communicator, or on those of them that are left at the end.
//
// A rank learns of a failure by an error of whatever call needs the rank that failed, and some ranks learn of
// none. Revoke frees those that wait for this one. Agree tells all alike whether every rank has come through:
// without it, some would end and others would shrink. What has been computed since the last checkpoint is
// computed again.
func survive(comm *mpi.Comm, p problem) error {
	for {
		done := uint64(1)
		if err := solve(comm, p); err != nil {
			if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
				return err
			}
			done = 0
			if err := comm.Revoke(); err != nil {
				return err
			}
		}
		all, err := comm.Agree(done)
		if err == nil && all == 1 {
			return nil
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		if comm, err = comm.Shrink(); err != nil {
			return err
		}
	}
}
