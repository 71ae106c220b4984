package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// TestPartialElements: a message that is no whole number of elements gives ErrType, however it is received, and
// whether or not there is room for it.
func TestPartialElements(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, partialElements, fabric) })
}

type threeInts [3]int32

var partialElements = body("partial elements", func(_ context.Context, world *mpi.Comm) error {
	own, cancel := context.WithCancel(context.Background())
	defer cancel()
	handle := world.WithContext(own)
	for _, peer := range []int{1 - world.Rank(), world.Rank()} {
		for _, bytes := range []int{1, 12, 20, 1004, 300_004} {
			for _, room := range []int{bytes/8 + 1, 1} {
				for name, receive := range map[string]func(buf []float64) (mpi.Status, error){
					"Recv": func(buf []float64) (mpi.Status, error) { return mpi.Recv(world, buf, peer, 1) },
					"Recv with a context": func(buf []float64) (mpi.Status, error) {
						return mpi.Recv(handle, buf, peer, 1)
					},
					"Recv from anybody": func(buf []float64) (mpi.Status, error) {
						return mpi.Recv(world, buf, mpi.AnySource, mpi.AnyTag)
					},
					"Irecv": func(buf []float64) (mpi.Status, error) { return statusAfter(mpi.Irecv(world, buf, peer, 1)) },
					"Mrecv": func(buf []float64) (mpi.Status, error) {
						m, _, err := mpi.Mprobe(world, peer, 1)
						if err != nil {
							return mpi.Status{}, err
						}
						return mpi.Mrecv(&m, buf)
					},
					"RecvInit": func(buf []float64) (mpi.Status, error) {
						p, err := mpi.RecvInit(world, buf, peer, 1)
						if err != nil {
							return mpi.Status{}, err
						}
						st, err := statusAfter(p.Start())
						return st, errors.Join(err, p.Free())
					},
					"RecvView": func(buf []float64) (mpi.Status, error) {
						return mpi.RecvView(world, mpi.Strided(make([]float64, 2*len(buf)), len(buf), 1, 2), peer, 1)
					},
					"IrecvView": func(buf []float64) (mpi.Status, error) {
						return statusAfter(mpi.IrecvView(world, mpi.Strided(make([]float64, 2*len(buf)), len(buf), 1, 2),
							peer, 1))
					},
					"RecvSlice": func([]float64) (mpi.Status, error) {
						_, st, err := mpi.RecvSlice[float64](world, peer, 1)
						return st, err
					},
				} {
					s, err := mpi.Isend(world, make([]byte, bytes), peer, 1)
					if err != nil {
						return err
					}
					_, err = receive(make([]float64, room))
					if !errors.Is(err, mpi.ErrType) {
						return fmt.Errorf("%s of %d bytes from %d with room for %d: %v", name, bytes, peer, room, err)
					}
					var e *mpi.Error
					if errors.As(err, &e); e.Peer != peer || e.Tag != 1 {
						return fmt.Errorf("%s: %v, of peer %d", name, err, e.Peer)
					}
					if _, err := s.Wait(); err != nil {
						return err
					}
				}
			}
		}
		// A size that is no power of two.
		for _, n := range []int{12, 16, 24, 28, 36} {
			s, err := mpi.Isend(world, make([]byte, n), peer, 2)
			if err != nil {
				return err
			}
			st, err := mpi.Recv(world, make([]threeInts, 3), peer, 2)
			if n%12 == 0 {
				err = firstError(err, want("count", st.Count, n/12))
			} else {
				err = wantError(fmt.Sprint(n, " bytes"), err, mpi.ErrType)
			}
			if _, err2 := s.Wait(); err != nil || err2 != nil {
				return errors.Join(err, err2)
			}
		}
	}
	return checkedSum(world, 4)
})

func statusAfter(r mpi.Request, err error) (mpi.Status, error) {
	if err != nil {
		return mpi.Status{}, err
	}
	return r.Wait()
}

// TestRecvSlice receives messages of any length into new memory.
func TestRecvSlice(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		together(t, 3, recvSlice, fabric)
		together(t, 3, recvSlice, fabric, "WEFT_CHECK=1")
	})
}

var recvSlice = body("RecvSlice", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	for _, n := range []int{0, 1, 7, 1000, 100_000} {
		for _, src := range []int{previous, mpi.AnySource} {
			sent := make([]threeInts, n)
			for i := range sent {
				sent[i] = threeInts{int32(i), int32(n), 3}
			}
			s, err := mpi.Isend(world, sent, next, 3)
			if err != nil {
				return err
			}
			got, st, err := mpi.RecvSlice[threeInts](world, src, 3)
			if _, err2 := s.Wait(); err != nil || err2 != nil {
				return errors.Join(err, err2)
			}
			if err := firstError(want("source", st.Source, previous), want("count", st.Count, n),
				want("equal", slices.Equal(got, sent), true)); err != nil {
				return fmt.Errorf("%d elements: %w", n, err)
			}
		}
		if err := mpi.Barrier(world); err != nil { // messages of the next round are not for AnySource of this
			return err
		}
	}
	none, st, err := mpi.RecvSlice[int](world, mpi.ProcNull, 0)
	return firstError(err, want("elements", len(none), 0), want("source", st.Source, mpi.ProcNull))
})

// TestPart: the parts are contiguous, cover everything, and differ by one at most.
func TestPart(t *testing.T) {
	for n := range 50 {
		for size := 1; size < 12; size++ {
			at := 0
			for rank := range size {
				first, count := mpi.Part(n, rank, size)
				require.Equal(t, at, first)
				require.True(t, count == n/size || count == n/size+1)
				at += count
			}
			require.Equal(t, n, at)
		}
	}
	const most = int(^uint(0) >> 1)
	first, count := mpi.Part(most, 6, 7)
	require.Equal(t, most, first+count)
	for _, wrong := range [][3]int{{-1, 0, 1}, {5, -1, 2}, {5, 2, 2}, {5, 0, 0}} {
		first, count := mpi.Part(wrong[0], wrong[1], wrong[2])
		require.Equal(t, [2]int{}, [2]int{first, count})
	}
}
