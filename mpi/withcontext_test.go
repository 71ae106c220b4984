package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/mpi"
)

func TestWithContext(t *testing.T) { ranks(t, 2, withContext) }

// asleep runs call, and end when it has gone to sleep.
func asleep(world *mpi.Comm, end func(), call func() error) error {
	before := world.Stats().Sleeps
	result := make(chan error, 1)
	go func() { result <- call() }()
	for world.Stats().Sleeps == before {
		time.Sleep(time.Millisecond)
	}
	end()
	return <-result
}

var errEnough = errors.New("enough of it")

// Every blocking call ends with the context of its handle; buffers and communicator are good for more
// afterwards.
var withContext = body("with context", func(_ context.Context, world *mpi.Comm) error {
	me, other := world.Rank(), 1-world.Rank()
	if err := mpi.Barrier(world); err != nil { // a connection has a goroutine for as long as it stands
		return err
	}
	before := goleak.IgnoreCurrent()
	buf := make([]int64, 50_000) // more than any slot carries
	calls := []struct {
		name string
		call func(c *mpi.Comm) error
	}{
		{"Recv", func(c *mpi.Comm) error { _, err := mpi.Recv(c, buf, other, 1); return err }},
		{"Recv", func(c *mpi.Comm) error {
			_, err := mpi.Recv(c, buf, mpi.AnySource,
				mpi.AnyTag)
			return err
		}},
		{"Send", func(c *mpi.Comm) error { return mpi.Send(c, buf, other, 2) }},
		{"Ssend", func(c *mpi.Comm) error { return mpi.Ssend(c, buf[:1], other, 2) }},
		{"Ssend", func(c *mpi.Comm) error { return mpi.Ssend(c, buf[:1], me, 2) }},
		{"Sendrecv", func(c *mpi.Comm) error {
			_, err := mpi.Sendrecv(c, buf, other, 2, buf, other,
				1)
			return err
		}},
		{"SendrecvReplace", func(c *mpi.Comm) error {
			return ignoring(mpi.SendrecvReplace(c, buf, other, 2, other, 1))
		}},
		{"SendrecvValue", func(c *mpi.Comm) error {
			return ignoring3(mpi.SendrecvValue(c, buf, other, 2, other, 1))
		}},
		{"RecvSlice", func(c *mpi.Comm) error { return ignoring3(mpi.RecvSlice[int64](c, other, 1)) }},
		{"SendValue", func(c *mpi.Comm) error { return mpi.SendValue(c, buf, other, 2) }},
		{"RecvValue", func(c *mpi.Comm) error { return ignoring3(mpi.RecvValue[string](c, other, 1)) }},
		{"Wait", func(c *mpi.Comm) error { return wait(mpi.IsendValue(c, buf, other, 2)) }},
		{"Wait", func(c *mpi.Comm) error {
			r, err := mpi.IrecvValue[string](c, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			return ignoring3(r.Wait())
		}},
		{"Wait", func(c *mpi.Comm) error {
			p, err := mpi.SsendInit(c, buf[:1], other, 2)
			if err != nil {
				return err
			}
			return errors.Join(wait(p.Start()), p.Free())
		}},
		{"Probe", func(c *mpi.Comm) error { _, err := mpi.Probe(c, other, 1); return err }},
		{"Mprobe", func(c *mpi.Comm) error { _, _, err := mpi.Mprobe(c, mpi.AnySource, 1); return err }},
		{"Wait", func(c *mpi.Comm) error {
			r, err := mpi.Irecv(c, buf, other, 1)
			if err != nil {
				return err
			}
			_, err = r.Wait()
			return err
		}},
		{"Waitany", func(c *mpi.Comm) error {
			free, err := mpi.Irecv(world, buf[:1], other, 3)
			if err != nil {
				return err
			}
			bound, err := mpi.Issend(c, buf[1:2], other, 2)
			if err != nil {
				return err
			}
			i, _, err := mpi.Waitany([]mpi.Request{{}, free, bound})
			cancelled := free.Cancel() // it has nothing to do with the context
			st, waited := free.Wait()
			if err := firstError(want("index", i, 2), cancelled, waited,
				want("cancelled", st.Cancelled(), true)); err != nil {
				return err
			}
			return err
		}},
		{"Start", func(c *mpi.Comm) error {
			p, err := mpi.RecvInit(c, buf, other, 1)
			if err != nil {
				return err
			}
			r, err := p.Start()
			if err != nil {
				return err
			}
			if _, err = r.Wait(); !errors.Is(err, errEnough) {
				return fmt.Errorf("Wait: %w", err)
			}
			_, err = p.Start() // through a handle whose context has ended
			return err
		}},
	}
	for _, k := range calls {
		if me == 0 {
			ctx, cancel := context.WithCancelCause(context.Background())
			c := world.WithContext(ctx)
			err := asleep(world, func() { cancel(errEnough) }, func() error { return k.call(c) })
			if err := firstError(wantMisuse(k.name, err, context.Canceled),
				wantMisuse(k.name, err, errEnough)); err != nil {
				return err
			}
			if err := wantMisuse("Send", mpi.Send(c, buf, other, 0), errEnough); err != nil {
				return err
			}
			for i := range buf {
				buf[i] = 0 // the race detector, and the message below, would tell of one who still reads it
			}
			if err := mpi.Send(world, buf[:1], other, 99); err != nil {
				return err
			}
		} else {
			// It comes after all that was given up.
			if _, err := mpi.Recv(world, buf, other, 99); err != nil {
				return err
			}
			if err := want(k.name+": a message that was given up", unreceived(world), false); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
	}

	// A collective that one rank gives up, and then the other; the next one is in step again.
	ctx, cancel := context.WithCancel(context.Background())
	past, stop := context.WithTimeout(context.Background(), -1)
	defer stop()
	if me == 0 {
		err := asleep(world, cancel, func() error { return mpi.Bcast(world.WithContext(ctx), buf, 1) })
		if err := firstError(wantMisuse("Bcast", err, context.Canceled),
			mpi.Send(world, buf[:1], other, 0)); err != nil {
			return err
		}
	} else {
		cancel()
		if _, err := mpi.Recv(world, buf[:1], other, 0); err != nil {
			return err
		}
		soon, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer stop()
		if err := wantMisuse("Bcast", mpi.Bcast(world.WithContext(soon), buf, 1),
			context.DeadlineExceeded); err != nil {
			return err
		}
	}
	if err := wantMisuse("Barrier", mpi.Barrier(world.WithContext(past)),
		context.DeadlineExceeded); err != nil {
		return err
	}
	sum := make([]int, 1)
	if err := mpi.Allreduce(world, []int{me + 1}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	never := world.WithContext(context.Background())
	//lint:ignore SA1012 a nil context is one that never ends
	nothing := never.WithContext(nil) //nolint:staticcheck
	err := firstError(want("sum", sum[0], 3), mpi.Barrier(never), mpi.Barrier(nothing),
		want("messages that nobody received", unreceived(world), false))
	if err != nil {
		return err
	}
	return goleak.Find(before)
})

// unreceived reports whether a message is there.
func unreceived(c *mpi.Comm) bool {
	_, ok, err := mpi.Iprobe(c, mpi.AnySource, mpi.AnyTag)
	return ok || err != nil
}

func TestCollectivesEndWithTheirContext(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, collectivesGivenUp, fabric) })
}

// A collective that only one rank calls ends with its context; the world is in step.
var collectivesGivenUp = body("collectives are given up", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	memory := make([]int64, 400_000)
	half := func(i int) mpi.View[int64] { return mpi.Strided(memory[i*100_000:], 50_000, 1, 2) }
	in, out := []mpi.View[int64]{half(0), half(1)}, []mpi.View[int64]{half(2), half(3)}
	for _, k := range []struct {
		name string
		call func(g *mpi.Cart) error // at rank 1 of 2
	}{
		{"BcastView", func(g *mpi.Cart) error { return mpi.BcastView(g.Comm(), in[0], 0) }},
		{"BcastValue", func(g *mpi.Cart) error { return ignoring(mpi.BcastValue(g.Comm(), "a", 0)) }},
		{"GatherValues", func(g *mpi.Cart) error { return ignoring(mpi.GatherValues(g.Comm(), "a", 1)) }},
		{"ScatterValues", func(g *mpi.Cart) error {
			return ignoring(mpi.ScatterValues[string](g.Comm(), nil, 0))
		}},
		{"AllgatherValues", func(g *mpi.Cart) error { return ignoring(mpi.AllgatherValues(g.Comm(), "a")) }},
		{"AlltoallValues", func(g *mpi.Cart) error {
			return ignoring(mpi.AlltoallValues(g.Comm(), []string{"a", "b"}))
		}},
		{"ReduceValue", func(g *mpi.Cart) error {
			return ignoring(mpi.ReduceValue(g.Comm(), 1, mpi.Sum[int](), 1))
		}},
		{"AllreduceValue", func(g *mpi.Cart) error {
			return ignoring(mpi.AllreduceValue(g.Comm(), 1, mpi.Sum[int]()))
		}},
		{"ExscanValue", func(g *mpi.Cart) error {
			return ignoring(mpi.ExscanValue(g.Comm(), 1, mpi.Sum[int]()))
		}},
		{"AlltoallView", func(g *mpi.Cart) error { return mpi.AlltoallView(g.Comm(), in, out) }},
		{"Wait", func(g *mpi.Cart) error { return wait(mpi.IalltoallView(g.Comm(), in, out)) }},
		{"Wait", func(g *mpi.Cart) error { return startedOnce(mpi.AlltoallViewInit(g.Comm(), in, out)) }},
		{"NeighborAlltoall", func(g *mpi.Cart) error {
			return mpi.NeighborAlltoall(g, memory[:2], memory[2:4])
		}},
		{"NeighborAlltoallView", func(g *mpi.Cart) error { return mpi.NeighborAlltoallView(g, in, out) }},
		{"Wait", func(g *mpi.Cart) error { return wait(mpi.IneighborAlltoallView(g, in, out)) }},
		{"Wait", func(g *mpi.Cart) error { return startedOnce(mpi.NeighborAlltoallViewInit(g, in, out)) }},
	} {
		turned, err := world.Split(0, -me)
		if err != nil {
			return err
		}
		g, err := turned.Cart([]int{2}, []bool{true}, false)
		if err != nil {
			return err
		}
		if me == 0 {
			ctx, cancel := context.WithCancelCause(context.Background())
			handle := g.WithContext(ctx)
			err := asleep(world, func() { cancel(errEnough) }, func() error { return k.call(handle) })
			if err := wantMisuse(k.name, err, errEnough); err != nil {
				return err
			}
		}
		if err := firstError(mpi.Barrier(world), g.Comm().Free(), turned.Free()); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return checkedSum(world, 4)
})

// startedOnce starts a persistent operation once and waits for it.
func startedOnce(p *mpi.Persistent, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(wait(p.Start()), p.Free())
}
