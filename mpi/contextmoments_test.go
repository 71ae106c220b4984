package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// endsLater is a context that ends when it has been asked a number of times whether it has.
type endsLater struct {
	context.Context
	left atomic.Int64
	end  func() <-chan struct{}
}

func newEndsLater(times int) *endsLater {
	done := make(chan struct{})
	x := &endsLater{Context: context.Background()}
	once := sync.OnceFunc(func() { close(done) })
	x.left.Store(int64(times))
	x.end = func() <-chan struct{} {
		if x.left.Load() < 0 {
			once()
		}
		return done
	}
	return x
}

func (x *endsLater) Done() <-chan struct{} { return x.end() }

func (x *endsLater) Err() error {
	if x.left.Add(-1) >= 0 {
		return nil
	}
	x.end()
	return context.Canceled
}

// TestContextEndsAtAnyMoment: wherever in a call the context ends, a message is received by the call, or it is
// there for the next one; and a message that Mprobe has reserved is received whatever its context does.
func TestContextEndsAtAnyMoment(t *testing.T) {
	onWires(t, func(t *testing.T, wire []string) { together(t, 2, contextMoments, wire...) })
	together(t, 2, contextMoments, "WEFT_CHECK=1")
}

var contextMoments = body("context moments", func(_ context.Context, world *mpi.Comm) error {
	const size = 100_000 // announced, so that its sender waits for the receive
	receives := map[string]func(c *mpi.Comm) (first byte, err error){
		"RecvValue": func(c *mpi.Comm) (byte, error) {
			b, _, err := mpi.RecvValue[[]byte](c, 0, 1)
			if err != nil {
				return 0, err
			}
			return b[0], nil
		},
		"Mprobe, Mrecv": func(c *mpi.Comm) (byte, error) {
			m, st, err := mpi.Mprobe(c, 0, 2)
			if err != nil {
				return 0, err
			}
			b := make([]byte, st.Bytes())
			if _, err := mpi.Mrecv(&m, b); err != nil {
				return 0, fmt.Errorf("the message is lost: %v", err)
			}
			return b[0], nil
		},
		"Improbe, Imrecv": func(c *mpi.Comm) (byte, error) {
			var m mpi.Message
			for ok := false; !ok; {
				var err error
				if m, _, ok, err = mpi.Improbe(c, 0, 3); err != nil {
					return 0, err
				}
			}
			b := make([]byte, size)
			r, err := mpi.Imrecv(&m, b)
			if err == nil {
				_, err = r.Wait()
			}
			if err != nil {
				return 0, fmt.Errorf("the message is lost: %v", err)
			}
			return b[0], nil
		},
	}
	const moments = 8
	for i := range moments {
		if world.Rank() == 0 {
			b := make([]byte, size)
			b[0] = byte(i)
			if err := firstError(mpi.SendValue(world, b, 1, 1), mpi.Ssend(world, b, 1, 2),
				mpi.Ssend(world, b, 1, 3)); err != nil {
				return err
			}
			continue
		}
		for _, name := range []string{"RecvValue", "Mprobe, Mrecv", "Improbe, Imrecv"} {
			ctx := newEndsLater(i)
			got, err := receives[name](world.WithContext(ctx))
			if errors.Is(err, context.Canceled) {
				got, err = receives[name](world)
			}
			for ctx.Err() == nil { // the handle is kept until its context ends
			}
			if err := firstError(err, want("the message", got, byte(i))); err != nil {
				return fmt.Errorf("%s, moment %d: %w", name, i, err)
			}
		}
	}
	return nil
})

func TestSendrecvKeepsItsMessage(t *testing.T) {
	together(t, 2, sendrecvKeeps)
	together(t, 2, sendrecvKeeps, "WEFT_CHECK=1")
}

// A Sendrecv whose send is wrong takes no message; one whose send is given up tells what it has received.
var sendrecvKeeps = body("sendrecv keeps", func(_ context.Context, world *mpi.Comm) error {
	const rounds = 6
	if world.Rank() == 0 {
		for i := range rounds {
			if err := mpi.Send(world, []int64{int64(i)}, 1, 1); err != nil {
				return err
			}
		}
		return mpi.Barrier(world)
	}
	large, got := make([]int64, 50_000), make([]int64, 1)
	if _, err := mpi.Probe(world, 0, 1); err != nil {
		return err
	}
	view, one := mpi.Strided(large, len(large), 1, 1), mpi.Strided(got, 1, 1, 1)
	if os.Getenv("WEFT_CHECK") == "" { // which counts mistakes
		_, wrongRank := mpi.Sendrecv(world, large, 7, 5, got, 0, 1)
		_, wrongType := mpi.Sendrecv(world, []string{"a"}, 0, 5, got, 0, 1)
		_, wrongTag := mpi.SendrecvView(world, view, 0, -7, one, 0, 1)
		if err := firstError(wantError("rank 7", wrongRank, mpi.ErrRank),
			wantError("strings", wrongType, mpi.ErrType), wantError("tag -7", wrongTag, mpi.ErrTag)); err != nil {
			return err
		}
	}
	calls := []func(c *mpi.Comm) (mpi.Status, error){
		func(c *mpi.Comm) (mpi.Status, error) { return mpi.Sendrecv(c, large, 0, 5, got, 0, 1) },
		func(c *mpi.Comm) (mpi.Status, error) {
			return mpi.SendrecvView(c, view, 0, 5, one, 0, 1)
		},
	}
	for i := range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		var st mpi.Status
		err := asleep(world, cancel, func() (err error) {
			st, err = calls[i%len(calls)](world.WithContext(ctx))
			return err
		})
		if err := firstError(wantMisuse("Sendrecv", err, context.Canceled), want("bytes", st.Bytes(), 8),
			want("the message", got[0], int64(i))); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var st mpi.Status
	err := asleep(world, cancel, func() (err error) {
		st, err = mpi.SendrecvView(world.WithContext(ctx), view, 0, 5, one, 0, 1)
		return err
	})
	return firstError(wantMisuse("SendrecvView", err, context.Canceled),
		want("nothing received", st.Cancelled(), true), mpi.Barrier(world))
})
