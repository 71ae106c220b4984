package mpi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

func TestWrongArguments(t *testing.T) { together(t, 2, wrongArguments) }

var wrongArguments = body("wrong arguments", func(_ context.Context, world *mpi.Comm) error {
	one := make([]byte, 1)
	other := 1 - world.Rank()
	_, recvRank := mpi.Recv(world, one, -7, 0)
	_, recvTag := mpi.Recv(world, one, other, -2)
	_, irecvType := mpi.Irecv(world, make([]string, 1), other, 0)
	_, probe := mpi.Probe(world, 2, 0)
	_, null := mpi.Recv[byte](nil, one, 0, 0)
	type inner struct{ P *int }
	nested := mpi.Send(world, []struct {
		A int
		B [2]inner
	}{{}}, other, 0)
	err := firstError(
		wantError("rank 2 of 2", mpi.Send(world, one, 2, 0), mpi.ErrRank),
		wantError("rank -7", recvRank, mpi.ErrRank),
		wantError("AnySource as destination", mpi.Send(world, one, mpi.AnySource, 0), mpi.ErrRank),
		wantError("tag -1", mpi.Send(world, one, other, -1), mpi.ErrTag),
		wantError("tag above TagUB", mpi.Send(world, one, other, mpi.TagUB+1), mpi.ErrTag),
		wantError("tag -2", recvTag, mpi.ErrTag),
		wantError("strings", irecvType, mpi.ErrType),
		wantError("a nested pointer", nested, mpi.ErrType),
		wantError("maps", mpi.Bcast(world, make([]map[int]int, 1), 0), mpi.ErrType),
		wantError("probe of rank 2", probe, mpi.ErrRank),
		wantError("nil communicator", null, mpi.ErrComm),
		wantError("root", mpi.Bcast(world, one, 5), mpi.ErrRoot),
		wantError("lengths", mpi.Allreduce(world, make([]int, 2), make([]int, 3), mpi.Sum[int]()),
			mpi.ErrCount),
		wantError("operator", mpi.Allreduce(world, []int{1}, []int{1}, mpi.Op[int]{}), mpi.ErrOp),
	)
	if err != nil {
		return err
	}
	for _, part := range []string{".B[].P", "ptr"} {
		if !strings.Contains(nested.Error(), part) {
			return fmt.Errorf("%q does not name %s", nested, part)
		}
	}
	if s := mpi.Send(world, one, 2, 3).Error(); !strings.Contains(s, fmt.Sprintf("mpi: rank %d: "+
		"Send to rank 2, tag 3, on world: ", world.Rank())) {
		return fmt.Errorf("%q does not say what failed", s)
	}
	// After all that, the two still talk.
	_, err = mpi.Sendrecv(world, one, other, 0, one, other, 0)
	return err
})

func TestNothingToSend(t *testing.T) {
	together(t, 2, nothingToSend)
	together(t, 2, nothingToSend, "WEFT_CHECK=1")
}

// A nil slice is a message of length 0; ProcNull is nobody.
var nothingToSend = body("nothing to send", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	st, err := mpi.Sendrecv[int, float64](world, nil, other, 4, nil, other, 4)
	if err != nil {
		return err
	}
	null, err := mpi.Recv(world, make([]int, 3), mpi.ProcNull, 0)
	request, err2 := mpi.Irecv(world, make([]int, 3), mpi.ProcNull, 0)
	waited, err3 := request.Wait()
	var zero mpi.Request
	_, err4 := zero.Wait()
	return firstError(err, err2, err3, err4, mpi.Send(world, []int{1}, mpi.ProcNull, 0),
		want("count", st.Count, 0), want("tag", st.Tag, 4), want("source", st.Source, other),
		want("ProcNull's source", null.Source, mpi.ProcNull), want("ProcNull's tag", null.Tag, mpi.AnyTag),
		want("count", null.Count, 0),
		want("ProcNull's source by Irecv", waited.Source, mpi.ProcNull))
})

func TestTypedMessages(t *testing.T) { anywhere(t, 2, typedMessages) }

var typedMessages = body("typed messages", func(_ context.Context, world *mpi.Comm) error {
	type particle struct {
		Position [3]float64
		Charge   int8
		Alive    bool
	}
	other := 1 - world.Rank()
	out := []particle{{[3]float64{1, 2, float64(world.Rank())}, -1, true}, {Charge: 3}}
	in := make([]particle, 5)
	st, err := mpi.Sendrecv(world, out, other, 0, in, other, 0)
	if err != nil {
		return err
	}
	r, err := mpi.Isend(world, []complex64{complex(1, 2)}, other, 1)
	if err != nil {
		return err
	}
	z := make([]complex64, 1)
	if _, err := mpi.Recv(world, z, other, 1); err != nil {
		return err
	}
	_, once := r.Wait()
	_, twice := r.Wait()
	_, _, tested := r.Test()
	return firstError(
		want("count", st.Count, 2), want("position", in[0].Position[2], float64(other)),
		want("alive", in[0].Alive, true),
		want("charge", in[1].Charge, 3), want("complex", z[0], complex(1, 2)), once,
		wantError("waiting twice", twice, mpi.ErrRequest), wantError("testing afterwards", tested,
			mpi.ErrRequest))
})

func TestTruncation(t *testing.T) { anywhere(t, 2, truncation) }

var truncation = body("truncation", func(_ context.Context, world *mpi.Comm) error {
	for _, n := range []int{100, 50_000} {
		if world.Rank() == 0 {
			out := make([]int32, n)
			for i := range out {
				out[i] = int32(i)
			}
			if err := mpi.Send(world, out, 1, 0); err != nil {
				return fmt.Errorf("the sender of %d is not to blame: %w", n, err)
			}
			continue
		}
		in := make([]int32, n)
		st, err := mpi.Recv(world, in[:60], 0, 0)
		err = firstError(wantError("a message too long", err, mpi.ErrTruncate), want("count", st.Count, 60),
			want("last inside", in[59], 59), want("first outside", in[60], 0))
		if err != nil {
			return err
		}
	}
	return nil
})

func TestSelfMessages(t *testing.T) {
	for _, n := range []int{1, 3} {
		together(t, n, selfMessages)
	}
}

var selfMessages = body("self messages", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	for _, n := range []int{0, 1, 100, 100_000} {
		out, in := make([]uint16, n), make([]uint16, n)
		for i := range out {
			out[i] = uint16(i * 7)
		}
		st, err := mpi.Sendrecv(world, out, me, n, in, mpi.AnySource, n)
		if err != nil {
			return err
		}
		if err := firstError(want("source", st.Source, me), want("count", st.Count, n)); err != nil {
			return err
		}
		for i := range in {
			if in[i] != out[i] {
				return fmt.Errorf("element %d of %d differs", i, n)
			}
		}
	}
	return nil
})

// A process can call Init once only, so the test has one of its own.
func TestOutsideOfInitAndFinalize(t *testing.T) {
	const alone = "MPI_TEST_ALONE"
	if os.Getenv(alone) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestOutsideOfInitAndFinalize$", "-test.count=1")
		c.Env = append(os.Environ(), alone+"=1")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.ErrorIs(t, mpi.Send(nil, []int{1}, 0, 0), mpi.ErrNotInitialized)
	require.ErrorIs(t, mpi.Barrier(nil), mpi.ErrNotInitialized)
	require.ErrorIs(t, mpi.Finalize(), mpi.ErrNotInitialized)
	_, err := mpi.Alloc[int](1)
	require.ErrorIs(t, err, mpi.ErrNotInitialized)
	require.ErrorIs(t, mpi.Free([]int{1}), mpi.ErrNotInitialized)

	world, err := mpi.Init(t.Context()) // started without a launcher: a world of one
	require.NoError(t, err)
	require.Equal(t, 1, world.Size())
	_, err = mpi.Init(t.Context())
	require.ErrorContains(t, err, "second time")
	require.ErrorIs(t, mpi.Barrier(nil), mpi.ErrComm)
	x := []int{7}
	require.NoError(t, mpi.Allreduce(world, mpi.InPlace[int](), x, mpi.Sum[int]()))
	require.Equal(t, []int{7}, x)

	kept, err := mpi.Alloc[int](1000)
	require.NoError(t, err)
	kept[999] = 7

	require.NoError(t, mpi.Finalize())
	require.Equal(t, 7, kept[999], "what was not freed stays")
	kept[0] = 8
	require.ErrorIs(t, mpi.Free(kept), mpi.ErrFinalized)
	_, err = mpi.Alloc[int](1)
	require.ErrorIs(t, err, mpi.ErrFinalized)
	require.ErrorIs(t, mpi.Send(world, x, 0, 0), mpi.ErrFinalized)
	require.ErrorIs(t, mpi.Barrier(world), mpi.ErrFinalized)
	_, err = mpi.Irecv(world, x, 0, 0)
	require.ErrorIs(t, err, mpi.ErrFinalized)
	_, err = mpi.Probe(world, 0, 0)
	require.ErrorIs(t, err, mpi.ErrFinalized)
	require.ErrorIs(t, mpi.Finalize(), mpi.ErrFinalized)
	_, err = mpi.Init(t.Context())
	require.ErrorIs(t, err, mpi.ErrFinalized)
}

func TestBodyPanics(t *testing.T) {
	r := launch(t, 2, panickingBody)
	f := r.Cause(t)
	require.Equal(t, 0, f.Rank, "standard error:\n%s", r.Err)
	require.Contains(t, r.Err, "rank 0 panicked: index out of the lattice")
	require.Contains(t, r.Err, "usage_test.go", "the stack")
}

var panickingBody = body("panicking body", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 0 {
		panic("index out of the lattice")
	}
	return mpi.Barrier(world)
})

func TestAbort(t *testing.T) {
	r := launch(t, 3, abortBody)
	f := r.Cause(t)
	require.Equal(t, 2, f.Rank, "standard error:\n%s", r.Err)
	require.Equal(t, 42, f.ExitStatus())
}

var abortBody = body("abort", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 2 {
		world.Abort(42)
	}
	return mpi.Barrier(world)
})

// TestKilledRank kills a rank that the others wait for in several ways: the job ends with its status, and
// they say nothing misleading.
func TestKilledRank(t *testing.T) {
	r := launch(t, 4, killedBody)
	f := r.Cause(t)
	require.Equal(t, launcher.Killed, f.How, "standard error:\n%s", r.Err)
	require.Equal(t, 3, f.Rank)
	require.Equal(t, 137, f.ExitStatus())
}

var killedBody = body("killed", func(_ context.Context, world *mpi.Comm) error {
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	switch buf := make([]byte, 1<<20); world.Rank() {
	case 0:
		_, err := mpi.Recv(world, buf, 3, 0)
		return err
	case 1:
		return mpi.Send(world, buf, 3, 0)
	case 2:
		return mpi.Barrier(world)
	default:
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
})

func TestManyRanks(t *testing.T) {
	ranks(t, testlength.Of(64, 16), manyRanks)
}

var manyRanks = body("many ranks", func(_ context.Context, world *mpi.Comm) error {
	for range 3 {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
	}
	sum := make([]int, 1)
	if err := mpi.Allreduce(world, []int{world.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	return want("sum of the ranks", sum[0], world.Size()*(world.Size()-1)/2)
})

// TestWaitingRankIsQuiet: a rank that waits long uses hardly any processor time, and its other goroutines run
// meanwhile, with one processor for Go too.
func TestWaitingRankIsQuiet(t *testing.T) {
	for _, procs := range []string{"GOMAXPROCS=1", "GOMAXPROCS=2"} {
		r := launch(t, 2, quietBody, procs, polling)
		require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
	}
}

var quietBody = body("quiet", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 0 {
		if _, err := mpi.Recv(world, make([]byte, 1), 1, 0); err != nil {
			return err
		}
		return mpi.Send(world, make([]byte, 1), 1, 0)
	}
	program.Later() // the first long wait of a process has its code searched for timers
	// Only if the other goroutine runs does the message come that ends the wait.
	sent := make(chan error, 1)
	go func() {
		for range 500 {
			time.Sleep(time.Millisecond)
		}
		sent <- mpi.Send(world, make([]byte, 1), 0, 0)
	}()
	start, before := time.Now(), processorTime()
	if _, err := mpi.Recv(world, make([]byte, 1), 0, 0); err != nil {
		return err
	}
	used, took := processorTime()-before, time.Since(start)
	if used > took/2 {
		return fmt.Errorf("waiting for %v took %v of processor time", took, used)
	}
	return <-sent
})

func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var finalizeDuringReceive = launchertest.Body("Finalize during a receive", func() error {
	world, err := mpi.Init(context.Background())
	if err != nil {
		return err
	}
	begins, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		close(begins)
		_, err := mpi.Recv(world, make([]int, 1), mpi.AnySource, 0)
		ended <- err
	}()
	<-begins
	if err := mpi.Finalize(); err != nil && os.Getenv("WEFT_CHECK") == "" { // which reports it
		return err
	}
	return wantError("a receive that another goroutine's Finalize ends", <-ended, mpi.ErrFinalized)
})

// A program that calls Finalize while a goroutine of it receives is wrong. The receive fails, and no more.
func TestFinalize_EndsTheReceiveOfAnotherGoroutine(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) {
		for range testlength.Of(5, 2) {
			ranks(t, 2, finalizeDuringReceive, fabric)
			// with messages that Finalize sends
			ranks(t, 2, finalizeDuringReceive, fabric, "WEFT_CHECK=1")
		}
	})
}
