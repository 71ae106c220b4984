package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestStatusesOfInactiveRequests(t *testing.T) { together(t, 2, inactiveRequests) }

// The status of an inactive request is empty and replaces what the caller's slice held (MPI 4.1, 3.7.3).
var inactiveRequests = body("inactive requests", func(_ context.Context, world *mpi.Comm) error {
	me, other := world.Rank(), 1-world.Rank()
	isEmpty := func(what string, st mpi.Status) error {
		return firstError(want(what+": source", st.Source, mpi.AnySource),
			want(what+": tag", st.Tag, mpi.AnyTag),
			want(what+": count", st.Count, 0), want(what+": bytes", st.Bytes(), 0),
			want(what+": cancelled", st.Cancelled(), false),
			want(what+": error", st.Err(), nil))
	}
	var none mpi.Request
	waited, err := none.Wait()
	tested, ok, terr := none.Test()
	index, anyOne, aerr := mpi.Waitany(make([]mpi.Request, 3))
	testIndex, testedAny, anyOK, taerr := mpi.Testany(make([]mpi.Request, 3))
	err = firstError(err, terr, aerr, taerr, want("test", ok, true), want("index", index, -1),
		want("index", testIndex, -1),
		want("testany", anyOK, true), isEmpty("Wait", waited), isEmpty("Test", tested),
		isEmpty("Waitany", anyOne),
		isEmpty("Testany", testedAny))
	if err != nil {
		return err
	}
	got := make([]int, 1)
	full, err := mpi.Sendrecv(world, []int{me}, other, 7, got, other, 7)
	if err := firstError(err, want("source", full.Source, other)); err != nil {
		return err
	}
	for _, active := range []bool{false, true} {
		for name, all := range map[string]func(rs []mpi.Request, st []mpi.Status) error{
			"WaitallStatus": mpi.WaitallStatus,
			"TestallStatus": func(rs []mpi.Request, st []mpi.Status) error {
				for {
					if ok, err := mpi.TestallStatus(rs, st); ok || err != nil {
						return err
					}
				}
			},
		} {
			rs, st := make([]mpi.Request, 3), []mpi.Status{full, full, full, full}
			if active {
				if rs[1], err = mpi.Irecv(world, got, other, 8); err != nil {
					return err
				}
				if err := mpi.Send(world, []int{me}, other, 8); err != nil {
					return err
				}
			}
			if err := all(rs, st); err != nil {
				return err
			}
			for i, s := range st {
				err := isEmpty(fmt.Sprint(name, " ", i), s)
				if i == 3 || i == 1 && active {
					err = want(name+": source", s.Source, other)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return mpi.Barrier(world)
})

func TestMessageOfAFreedCommunicator(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, messageOfFreed, fabric) })
}

// A message that Mprobe took can be received after Free of its communicator (MPI 4.1, 3.8.2 and 7.4.3).
var messageOfFreed = body("message of a freed communicator", func(_ context.Context, world *mpi.Comm) error {
	me, other := world.Rank(), 1-world.Rank()
	for _, n := range []int{1, 200_000} {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		out, got := make([]int, n), make([]int, n)
		out[n-1] = me + 1
		s, err := mpi.Isend(c, out, other, 3)
		if err != nil {
			return err
		}
		m, st, err := mpi.Mprobe(c, other, 3)
		if err := firstError(err, want("count", st.Bytes(), 8*n), c.Free()); err != nil {
			return err
		}
		next, err := world.Dup() // makes ids of freed communicators free again
		if err != nil {
			return err
		}
		r, err := mpi.Imrecv(&m, got)
		if err != nil {
			return err
		}
		st, err = r.Wait()
		_, serr := s.Wait()
		if err := firstError(err, serr, want("source", st.Source, other),
			want("message", got[n-1], other+1), next.Free()); err != nil {
			return err
		}
	}
	return nil
})

func TestErrorsOfASplitCommunicator(t *testing.T) { together(t, 4, errorsOfSplit) }

// An error names a peer by its rank in the communicator, and adds the world rank where that differs.
var errorsOfSplit = body("errors of a split communicator", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Split(world.Rank()%2, 0) // world ranks 0 and 2, 1 and 3
	if err != nil {
		return err
	}
	c.SetName("half")
	me, other := c.Rank(), 1-c.Rank()
	far := world.Rank()%2 + 2*other // the world rank of other
	elsewhere := fmt.Sprintf("rank %d (world rank %d), tag 5, on half: ", other, far)
	if far == other {
		elsewhere = fmt.Sprintf("rank %d, tag 5, on half: ", other)
	}
	self := fmt.Sprintf("mpi: rank %d (world rank %d): ", me, world.Rank())
	if me == world.Rank() {
		self = fmt.Sprintf("mpi: rank %d: ", me)
	}
	// A message that is too long, at Recv and at Wait, named and from any source.
	long, short := []int{me, me}, make([]int, 1)
	for _, src := range []int{other, mpi.AnySource} {
		for _, wait := range []bool{false, true} {
			s, err := mpi.Isend(c, long, other, 5)
			if err != nil {
				return err
			}
			var st mpi.Status
			if wait {
				r, err := mpi.Irecv(c, short, src, 5)
				if err != nil {
					return err
				}
				st, err = r.Wait()
				err = wantFailure(err, other, 5, mpi.ErrTruncate, self+"Wait with "+elsewhere)
				if err := firstError(err, want("source", st.Source, other)); err != nil {
					return err
				}
			} else {
				_, err = mpi.Recv(c, short, src, 5)
				if err := wantFailure(err, other, 5, mpi.ErrTruncate, self+"Recv from "+elsewhere); err != nil {
					return err
				}
			}
			if _, err := s.Wait(); err != nil {
				return err
			}
		}
	}
	// A receive whose context ends.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := mpi.Irecv(c, short, other, 5)
	if err != nil {
		return err
	}
	if err := r.Cancel(); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	_, err = mpi.Recv(c.WithContext(ctx), short, other, 5)
	return wantFailure(err, other, 5, context.Canceled, self+"Recv from "+elsewhere)
})

// wantFailure fails a rank in which an error is not what it should be.
func wantFailure(err error, peer, tag int, cause error, text string) error {
	var e *mpi.Error
	if !errors.As(err, &e) || !errors.Is(err, cause) {
		return fmt.Errorf("got %v, want an Error of %v", err, cause)
	}
	got := err.Error()
	return firstError(want("rank of "+got, e.Rank, 1-peer), want("peer of "+got, e.Peer, peer), want("tag of "+got, e.Tag, tag),
		want("beginning of "+got, got[:min(len(got), len(text))], text))
}
