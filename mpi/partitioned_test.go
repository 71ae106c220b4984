package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestPartitioned(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(n), func(t *testing.T) { together(t, n, partitioned, setting) })
		}
	})
}

// Goroutines mark their partitions in any order, and others use theirs when they have arrived, with any numbers
// of partitions at the two ends, again and again, beside messages of the program with the same tag.
var partitioned = body("partitioned", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	for _, n := range []int{0, 24, 36_000} {
		for _, parts := range [][2]int{{4, 6}, {12, 1}, {1, 12}, {3, 3}} {
			if err := partitionedRing(world, n, parts[0], parts[1], next, previous); err != nil {
				return fmt.Errorf("%d elements, %d partitions sent and %d received: %w", n, parts[0], parts[1], err)
			}
		}
	}
	return nil
})

func partitionedRing(world *mpi.Comm, n, sends, recvs, next, previous int) error {
	const ops = 2 // of the same ranks and tag
	var out, in [ops][]int32
	var s, r [ops]*mpi.Partitioned
	var err error
	for k := range ops {
		out[k], in[k] = make([]int32, n), make([]int32, n)
		if s[k], err = mpi.PsendInit(world, out[k], sends, next, 7); err != nil {
			return err
		}
		if r[k], err = mpi.PrecvInit(world, in[k], recvs, previous, 7); err != nil {
			return err
		}
	}
	value := func(rank, k, round, i int) int32 { return int32(rank*100_000_000 + k*10_000_000 + round*1_000_000 + i) }
	for round := range 2 {
		for k := range ops {
			if err := firstError(r[k].Start(), s[k].Start()); err != nil {
				return err
			}
		}
		var wg sync.WaitGroup
		errs := make(chan error, ops*(sends+recvs))
		for k := range ops {
			for _, part := range rand.Perm(sends) {
				wg.Go(func() {
					for i := part * (n / sends); i < (part+1)*(n/sends); i++ {
						out[k][i] = value(world.Rank(), k, round, i)
					}
					errs <- s[k].Pready(part)
				})
			}
			for part := range recvs {
				wg.Go(func() {
					for arrived := false; !arrived; {
						var err error
						if arrived, err = r[k].Parrived(part); err != nil {
							errs <- err
							return
						}
						runtime.Gosched()
					}
					for i := part * (n / recvs); i < (part+1)*(n/recvs); i++ {
						if in[k][i] != value(previous, k, round, i) {
							errs <- fmt.Errorf("round %d: element %d is %d", round, i, in[k][i])
							return
						}
					}
				})
			}
		}
		st, err := mpi.Sendrecv(world, []int32{1}, next, 7, make([]int32, 1), mpi.AnySource, mpi.AnyTag)
		if err := firstError(err, want("a message of the program", st.Bytes(), 4)); err != nil {
			return err
		}
		for k := range ops {
			st, err := r[k].Wait()
			if err := firstError(err, want("source", st.Source, previous), want("tag", st.Tag, 7),
				want("count", st.Count, n)); err != nil {
				return err
			}
			for done := false; !done; runtime.Gosched() { // its partitions are marked by others
				if _, done, err = s[k].Test(); err != nil {
					return err
				}
			}
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				return err
			}
		}
		arrived, err := r[0].Parrived(0)
		if err := firstError(err, want("arrived when inactive", arrived, true)); err != nil {
			return err
		}
	}
	for k := range ops {
		if err := firstError(s[k].Free(), r[k].Free()); err != nil {
			return err
		}
	}
	return nil
}

func TestPartitionedReceiveFirst(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) { together(t, 2, receiveFirst, setting) })
}

// A receive that was started before its send was set up gets on while its rank waits for something else. Wait
// of the send drives what the rank owes others while partitions are not marked.
var receiveFirst = body("partitioned receive first", func(_ context.Context, world *mpi.Comm) error {
	buf := make([]int64, 100_000)
	if world.Rank() == 1 {
		p, err := mpi.PrecvInit(world, buf, 2, 0, 1)
		if err != nil {
			return err
		}
		arrived := true
		if err = p.Start(); err == nil {
			arrived, err = p.Parrived(1)
		}
		if err := firstError(err, want("arrived", arrived, false), mpi.Barrier(world)); err != nil {
			return err
		}
		if _, err := mpi.Recv[byte](world, nil, 0, 1); err != nil {
			return err
		}
		_, err = p.Wait()
		return firstError(err, want("the last element", buf[99_999], 99_999), p.Free())
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	p, err := mpi.PsendInit(world, buf, 10, 1, 1)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	waited := make(chan error)
	go func() {
		_, err := p.Wait()
		waited <- err
	}()
	for i := range buf {
		buf[i] = int64(i)
	}
	return firstError(p.PreadyRange(0, 0), p.PreadyRange(5, 10), p.PreadyRange(0, 5), <-waited,
		mpi.Send[byte](world, nil, 1, 1), p.Free())
})

func TestPartitionedMisuse(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, partitionedMisuse, fabric) })
}

// Every call says what is wrong. A buffer of another size is an error at the receiver, and the sender goes on.
// What waits ends with its context. Nobody sends and receives nothing.
var partitionedMisuse = body("partitioned misuse", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	ten := make([]int32, 10)
	init := func(p *mpi.Partitioned, err error) error { return err }
	var zero mpi.Partitioned
	_, zeroWait := zero.Wait()
	_, nilArrived := (*mpi.Partitioned)(nil).Parrived(0)
	if err := firstError(
		wantMisuse("PsendInit", init(mpi.PsendInit(world, ten, 3, other, 0)), mpi.ErrCount),
		wantMisuse("PsendInit", init(mpi.PsendInit(world, ten, 0, other, 0)), mpi.ErrCount),
		wantMisuse("PsendInit", init(mpi.PsendInit(world, ten[:0], mpi.MaxPartitions+1, other, 0)), mpi.ErrCount),
		wantMisuse("PsendInit", init(mpi.PsendInit(world, ten, 1, 2, 0)), mpi.ErrRank),
		wantMisuse("PsendInit", init(mpi.PsendInit(world, make([]string, 2), 1, other, 0)), mpi.ErrType),
		wantMisuse("PsendInit", init(mpi.PsendInit(nil, ten, 1, other, 0)), mpi.ErrComm),
		wantMisuse("PrecvInit", init(mpi.PrecvInit(world, ten, 1, mpi.AnySource, 0)), mpi.ErrRank),
		wantMisuse("PrecvInit", init(mpi.PrecvInit(world, ten, 1, other, mpi.AnyTag)), mpi.ErrTag),
		wantMisuse("Start", zero.Start(), mpi.ErrRequest), wantMisuse("Wait", zeroWait, mpi.ErrRequest),
		wantMisuse("Pready", zero.Pready(0), mpi.ErrRequest), wantMisuse("Free", zero.Free(), mpi.ErrRequest),
		wantMisuse("Parrived", nilArrived, mpi.ErrRequest)); err != nil {
		return err
	}

	s, err := mpi.PsendInit(world, ten, 5, other, 0)
	if err != nil {
		return err
	}
	r, err := mpi.PrecvInit(world, make([]int32, 8), 4, other, 0)
	if err != nil {
		return err
	}
	inactive := s.Pready(0)
	if err := firstError(s.Start(), r.Start()); err != nil {
		return err
	}
	_, ofSend := s.Parrived(0)
	_, outside := r.Parrived(4)
	if err := firstError(
		wantMisuse("Pready", inactive, mpi.ErrRequest), wantMisuse("Parrived", ofSend, mpi.ErrRequest),
		wantMisuse("Parrived", outside, mpi.ErrArg), wantMisuse("Pready", r.Pready(0), mpi.ErrRequest),
		wantMisuse("Pready", s.Pready(5), mpi.ErrArg), wantMisuse("PreadyRange", s.PreadyRange(3, 2), mpi.ErrArg),
		wantMisuse("Start", s.Start(), mpi.ErrRequest), wantMisuse("Free", s.Free(), mpi.ErrRequest),
		s.Pready(3), wantMisuse("PreadyRange", s.PreadyRange(2, 5), mpi.ErrArg),
		s.PreadyRange(0, 3), s.Pready(4)); err != nil {
		return err
	}
	_, sent := s.Wait()
	_, received := r.Wait()
	_, again := s.Wait()
	if err := firstError(sent, again, wantMisuse("Wait", received, mpi.ErrCount),
		wantMisuse("Start", r.Start(), mpi.ErrRequest), s.Free(), r.Free(),
		wantMisuse("Start", s.Start(), mpi.ErrRequest)); err != nil {
		return err
	}

	ctx, end := context.WithCancel(context.Background())
	defer end()
	c, err := world.Dup()
	if err != nil {
		return err
	}
	if s, err = mpi.PsendInit(c.WithContext(ctx), ten, 5, other, 0); err != nil {
		return err
	}
	if r, err = mpi.PrecvInit(c.WithContext(ctx), ten, 5, other, 1); err != nil { // which nobody sends
		return err
	}
	if err := firstError(s.Start(), r.Start(), s.Pready(1)); err != nil {
		return err
	}
	end()
	_, sent = s.Wait()
	_, received = r.Wait()
	if err := firstError(wantMisuse("Wait", sent, context.Canceled), wantMisuse("Wait", received,
		context.Canceled), wantMisuse("Pready", s.Pready(2), mpi.ErrRequest), s.Free(), r.Free(), c.Free(),
		mpi.Barrier(world)); err != nil {
		return err
	}

	if s, err = mpi.PsendInit(world, ten, 5, mpi.ProcNull, 0); err != nil {
		return err
	}
	if r, err = mpi.PrecvInit(world, ten, 5, mpi.ProcNull, 0); err != nil {
		return err
	}
	if err := firstError(s.Start(), r.Start(), s.PreadyRange(0, 5)); err != nil {
		return err
	}
	arrived, err := r.Parrived(1)
	_, sent = s.Wait()
	st, received := r.Wait()
	return firstError(err, want("arrived", arrived, true), sent, received,
		want("source", st.Source, mpi.ProcNull), s.Free(), r.Free())
})

func TestPartitionedAllocations(t *testing.T) { counted(t, partitionedAllocations) }

// What is started again and again allocates nothing.
var partitionedAllocations = body("partitioned allocations", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	s, err := mpi.PsendInit(world, make([]int64, 40), 4, other, 0)
	if err != nil {
		return err
	}
	r, err := mpi.PrecvInit(world, make([]int64, 40), 2, other, 0)
	if err != nil {
		return err
	}
	var failure error
	round := func() {
		if failure != nil {
			return
		}
		err := firstError(r.Start(), s.Start(), s.Pready(3), s.PreadyRange(0, 3))
		for arrived := false; !arrived && err == nil; {
			arrived, err = r.Parrived(1)
		}
		_, sent := s.Wait()
		_, received := r.Wait()
		failure = firstError(err, sent, received)
	}
	for range 50 {
		round()
	}
	if n := allocationsPerRound(round); failure == nil && n > 0 {
		failure = fmt.Errorf("%v allocations", n)
	}
	fmt.Println("counted")
	return firstError(failure, s.Free(), r.Free())
})
