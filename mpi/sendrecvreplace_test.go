package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// onFabricsAndChecked is onFabrics, and checking mode.
func onFabricsAndChecked(t *testing.T, test func(t *testing.T, setting string)) {
	fabricsInTurn(t, test)
	t.Run("checking mode", func(t *testing.T) { test(t, "WEFT_CHECK=1") })
}

// checking says that a rank is in checking mode, which would count mistakes that a test makes.
func checking() bool { return os.Getenv("WEFT_CHECK") != "" }

func TestSendrecvReplace(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(n), func(t *testing.T) { together(t, n, sendrecvReplace, setting) })
		}
	})
}

// Messages of any length go around a ring in place, and fit those of Sendrecv. A shorter message leaves the
// rest as it is, a longer one is cut off.
var sendrecvReplace = body("SendrecvReplace", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	filled := func(rank, n int) []int32 {
		buf := make([]int32, n)
		for i := range buf {
			buf[i] = int32(rank*1_000_000 + i)
		}
		return buf
	}
	for _, n := range []int{0, 1, 1000, 300_000} {
		for _, more := range []int{0, -n / 2, 1} { // what rank 0 sends with Sendrecv is longer by
			if more > 0 && checking() {
				continue
			}
			buf := filled(me, n)
			var st mpi.Status
			var err error
			if me == 0 {
				st, err = mpi.Sendrecv(world, filled(me, n+more), next, 1, buf, previous, 1)
			} else {
				st, err = mpi.SendrecvReplace(world, buf, next, 1, mpi.AnySource, mpi.AnyTag)
			}
			wanted := n
			if previous == 0 {
				if wanted = n + more; more > 0 {
					err, wanted = wantError("too long a message", err, mpi.ErrTruncate), n
				}
			}
			expected := append(filled(previous, wanted), filled(me, n)[wanted:]...)
			if err := firstError(err, want("source", st.Source, previous), want("tag", st.Tag, 1),
				want("count", st.Count, wanted)); err != nil {
				return err
			}
			if !slices.Equal(buf, expected) {
				return fmt.Errorf("%d elements, %d of them received: other data", n, wanted)
			}
			// all of them in place
			buf = filled(me, n)
			st, err = mpi.SendrecvReplace(world, buf, next, 2, previous, 2)
			if err := firstError(err, want("count", st.Count, n)); err != nil {
				return err
			}
			if !slices.Equal(buf, filled(previous, n)) {
				return fmt.Errorf("%d elements in place: other data", n)
			}
		}
	}
	one := []int64{5}
	st, err := mpi.SendrecvReplace(world, one, mpi.ProcNull, 1, mpi.ProcNull, 1)
	return firstError(err, want("source", st.Source, mpi.ProcNull), want("the buffer", one[0], 5))
})

func TestSendrecvReplaceEndsWithItsContext(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, replaceGivenUp, fabric) })
}

// A SendrecvReplace whose context ends leaves its buffer alone, and its message is not received. The error is
// the receive's, and names its tag.
var replaceGivenUp = body("SendrecvReplace is given up", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 1 {
		_, err := mpi.Probe(world, 0, 1) // so the send is under way
		if err := firstError(err, mpi.Send[byte](world, nil, 0, 3), mpi.Barrier(world)); err != nil {
			return err
		}
		_, found, err := mpi.Iprobe(world, 0, 1)
		return firstError(err, want("a message", found, false))
	}
	ctx, end := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	failed := make(chan error, 1)
	buf := make([]int32, 300_000)
	buf[7] = 7
	go func() {
		_, err := mpi.SendrecvReplace(world.WithContext(ctx), buf, 1, 1, 1, 2)
		failed <- err
	}()
	_, told := mpi.Recv[byte](world, nil, 1, 3)
	for !asleepIn("SendrecvReplace") && len(failed) == 0 { // until then the send might fail instead
		time.Sleep(time.Millisecond)
	}
	end(cause)
	err := <-failed
	var named *mpi.Error
	if !errors.As(err, &named) {
		return fmt.Errorf("given up: %w", err)
	}
	return firstError(told, wantError("given up", err, cause), want("the tag", named.Tag, 2),
		want("the buffer", buf[7], 7), mpi.Barrier(world))
})

// The receive of a SendrecvReplace does not wait for its send, as the two are independent: rank 1 takes the
// message only when rank 2 is told that its own has gone. So a copy of the incoming message is needed, and of no
// more than that.
func TestSendrecvReplaceCopiesTheIncomingMessage(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) { ranks(t, 3, replaceIndependent, setting) })
}

var replaceIndependent = body("SendrecvReplace is independent", func(_ context.Context, world *mpi.Comm) error {
	const length, most = 8 << 20, 2 << 20 // bytes
	for _, n := range []int{1, 100, length} {
		var err error
		switch world.Rank() {
		case 0:
			buf := make([]byte, length)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var st mpi.Status
			st, err = mpi.SendrecvReplace(world, buf, 1, 0, 2, 0)
			runtime.ReadMemStats(&after)
			if err == nil {
				err = firstError(want("count", st.Count, n), want("the first", buf[0], 7), want("the last", buf[n-1], 7))
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; err == nil && n < length && allocated > most {
				err = fmt.Errorf("%d bytes allocated for a message of %d", allocated, n)
			}
		case 1:
			if _, err = mpi.Recv[byte](world, nil, 2, 0); err == nil {
				_, err = mpi.Recv(world, make([]byte, length), 0, 0)
			}
		case 2:
			if err = mpi.Ssend(world, bytes.Repeat([]byte{7}, n), 0, 0); err == nil {
				err = mpi.Send[byte](world, nil, 1, 0)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
})

func TestRequestStatus(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) { together(t, 2, requestStatus, setting) })
}

// RequestStatus tells what Wait tells afterwards, as often as it is called, and no more than Test before the
// operation is complete.
var requestStatus = body("RequestStatus", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	for _, n := range []int{0, 10, 100_000} {
		for _, room := range []int{n, n / 2} {
			if room < n && checking() {
				continue
			}
			in := make([]int32, room)
			r, err := mpi.Irecv(world, in, other, 1)
			if err != nil {
				return err
			}
			_, done, err := mpi.RequestStatus(r) // neither has sent
			if err := firstError(err, want("complete", done, false), mpi.Barrier(world)); err != nil {
				return err
			}
			s, err := mpi.Isend(world, make([]int32, n), other, 1)
			if err != nil {
				return err
			}
			var looked mpi.Status
			for !done {
				looked, done, err = mpi.RequestStatus(r)
			}
			_, _, again := mpi.RequestStatus(r)
			st, waited := r.Wait()
			if room < n {
				if err := firstError(wantError("a look", err, mpi.ErrTruncate),
					wantError("a second look", again, mpi.ErrTruncate),
					wantError("a wait", waited, mpi.ErrTruncate),
					want("the second error", again.Error(), err.Error())); err != nil {
					return err
				}
			} else if err := firstError(err, again, waited); err != nil {
				return err
			}
			if err := firstError(want("count", looked.Count, room), want("source", looked.Source, other),
				want("the status of Wait", st, looked)); err != nil {
				return err
			}
			for done, err = false, nil; !done && err == nil; {
				_, done, err = mpi.RequestStatus(s)
			}
			if _, waited := s.Wait(); err != nil || waited != nil {
				return firstError(err, waited)
			}
		}
	}
	nobody, err := mpi.Irecv(world, []int{1}, mpi.ProcNull, 0)
	if err != nil {
		return err
	}
	st, done, err := mpi.RequestStatus(nobody)
	_, zero, zeroErr := mpi.RequestStatus(mpi.Request{})
	_, waited := nobody.Wait()
	return firstError(err, zeroErr, waited, want("source", st.Source, mpi.ProcNull),
		want("ProcNull", done, true), want("the zero Request", zero, true))
})

func TestSsendInit(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) { together(t, 2, ssendInit, setting) })
}

// A synchronous send that is started is complete only when its receive has begun, each time.
var ssendInit = body("SsendInit", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	for _, n := range []int{0, 10, 20_000} {
		buf := make([]int32, n)
		if world.Rank() == 1 {
			for range 3 {
				if _, err := mpi.Probe(world, other, 1); err != nil {
					return err
				}
				if err := mpi.Send[byte](world, nil, other, 2); err != nil {
					return err
				}
				if _, err := mpi.Recv[byte](world, nil, other, 3); err != nil {
					return err
				}
				if _, err := mpi.Recv(world, buf, other, 1); err != nil {
					return err
				}
			}
			continue
		}
		p, err := mpi.SsendInit(world, buf, other, 1)
		if err != nil {
			return err
		}
		for range 3 {
			r, err := p.Start()
			if err != nil {
				return err
			}
			// Rank 1 has seen the message when this answer comes, and has not received it.
			if _, err := mpi.Recv[byte](world, nil, other, 2); err != nil {
				return err
			}
			_, done, err := r.Test()
			if err := firstError(err, want("complete without a receive", done, false),
				mpi.Send[byte](world, nil, other, 3)); err != nil {
				return err
			}
			if _, err := r.Wait(); err != nil {
				return err
			}
		}
		if err := p.Free(); err != nil {
			return err
		}
	}
	nobody, err := mpi.SsendInit(world, []byte{1}, mpi.ProcNull, 0)
	if err != nil {
		return err
	}
	r, err := nobody.Start()
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return firstError(err, nobody.Free())
})
