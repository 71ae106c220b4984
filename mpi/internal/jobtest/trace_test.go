package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/perfetto"
	"github.com/weft-mpi/weft/internal/perfetto/perfettotest"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// tracedBody has messages of all kinds: small and large, expected and not, of one element and of several, to
// itself, coalesced, of collectives, and taken by a matched probe.
var tracedBody = body("a job that is traced", func(ctx context.Context, c *mpi.Comm) error {
	defer mpi.Region(ctx, "everything")()
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for round := range 20 {
		end := mpi.Region(ctx, "exchange")
		for _, n := range []int{0, 8, 3000, 200_000} {
			in := make([]byte, n)
			if _, err := mpi.Sendrecv(c, make([]byte, n), next, round, in, before, round); err != nil {
				return err
			}
		}
		end()
		var all []mpi.Request
		for range 10 { // one after the other: they share writes
			r, err := mpi.Isend(c, []byte{1, 2, 3}, next, 1000)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		for range 9 { // they have come before their receives
			if _, err := mpi.Recv(c, make([]byte, 3), mpi.AnySource, 1000); err != nil {
				return err
			}
		}
		m, _, err := mpi.Mprobe(c, before, mpi.AnyTag)
		if err != nil {
			return err
		}
		if _, err := mpi.Mrecv(&m, make([]byte, 3)); err != nil {
			return err
		}
		if err := mpi.Waitall(all); err != nil {
			return err
		}
		if err := tracedRing(c, next, before); err != nil {
			return err
		}
		if err := mpi.Send(c, []byte{1}, c.Rank(), 7); err != nil {
			return err
		}
		if _, err := mpi.Recv(c, make([]byte, 1), c.Rank(), 7); err != nil {
			return err
		}
	}
	return nil
})

// tracedRing has messages of calls that consist of others, to the next rank: values, slices, replaced and
// partitioned ones.
func tracedRing(c *mpi.Comm, next, before int) error {
	text := strings.Repeat("text", 1000)
	if _, _, err := mpi.SendrecvValue(c, text, next, 2, before, 2); err != nil {
		return err
	}
	later, err := mpi.IrecvValue[[]int](c, before, 3)
	if err != nil {
		return err
	}
	if err := mpi.SendValue(c, []int{1, 2}, next, 3); err != nil {
		return err
	}
	if _, _, err := later.Wait(); err != nil {
		return err
	}
	if _, err := mpi.SendrecvReplace(c, make([]byte, 200_000), next, 4, before, 4); err != nil {
		return err
	}
	p, err := mpi.SsendInit(c, make([]byte, 100), next, 5)
	if err != nil {
		return err
	}
	synchronous, err := p.Start()
	if err != nil {
		return err
	}
	if _, _, err := mpi.RecvSlice[byte](c, before, 5); err != nil {
		return err
	}
	s, err := mpi.PsendInit(c, make([]byte, 100), 2, next, 6)
	if err != nil {
		return err
	}
	r, err := mpi.PrecvInit(c, make([]byte, 100), 1, before, 6)
	if err != nil {
		return err
	}
	err = firstError(wait(synchronous, nil), p.Free(), r.Start(), s.Start(), s.PreadyRange(0, 2))
	_, sent := s.Wait()
	_, received := r.Wait()
	return firstError(err, sent, received, s.Free(), r.Free())
}

// tracedJob runs a job with a trace, and returns what is in the file.
func tracedJob(t *testing.T, ranks int, body, fabric string, settings ...string) *perfettotest.Trace {
	name := filepath.Join(t.TempDir(), "job.pftrace")
	settings = append(settings, "WEFT_FABRIC="+fabric)
	err := launcher.Run(t.Context(), launcher.Job{
		Apps:    []launcher.App{launchertest.Ranks(ranks, body, append([]string{"WEFT_TRACE=4M"}, settings...)...)},
		Timeout: time.Minute, Trace: name, Stdin: launcher.InputNone, Out: os.Stderr, Err: os.Stderr})
	require.NoError(t, err)
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	return perfettotest.Check(t, f)
}

func TestTrace_HasEveryMessageAtBothEnds(t *testing.T) {
	t.Parallel()
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			trace := tracedJob(t, 3, tracedBody, fabric)
			require.Equal(t, trace.Arrows, trace.Count(perfetto.Instant, "send"))
			require.Equal(t, trace.Arrows, trace.Count(perfetto.Instant, "receive"))
			require.GreaterOrEqual(t, trace.Arrows, 3*20*(15+6))
			require.Equal(t, 3, trace.Count(perfetto.SliceBegin, "everything"))
			require.Equal(t, 3*20, trace.Count(perfetto.SliceBegin, "exchange"))
			require.Equal(t, 3*20, trace.Count(perfetto.SliceBegin, "Barrier"))
			for _, e := range trace.Events {
				if len(e.Flows) > 0 {
					require.Contains(t, e.Notes, "peer")
					require.Contains(t, e.Notes, "bytes")
					require.Equal(t, "world", e.Notes["communicator"].Text[:5])
				}
			}
		})
	}
}

// tracedWindows makes the calls on windows, each once at every rank.
var tracedWindows = body("a job with windows that is traced", func(_ context.Context, c *mpi.Comm) error {
	w, err := mpi.WinAllocate[int64](c, 64)
	if err != nil {
		return err
	}
	next := (c.Rank() + 1) % c.Size()
	data, more, sum := make([]int64, 16), make([]int64, 16), mpi.Sum[int64]()
	var rs [4]mpi.Request
	var errs [4]error
	steps := []func() error{
		w.Fence,
		func() error { return w.Put(data, next, 0) },
		func() error { return w.Get(more, next, 16) },
		func() error { return w.PutView(mpi.Strided(data, 4, 4, 4), next, w.At(0, 16)) },
		func() error { return w.GetView(mpi.Strided(more, 4, 4, 4), next, w.At(16, 16)) },
		func() error {
			rs[0], errs[0] = w.Rput(data, next, 0)
			rs[1], errs[1] = w.Rget(more, next, 16)
			rs[2], errs[2] = w.Raccumulate(data, next, 32, sum)
			rs[3], errs[3] = w.RgetAccumulate(data, more, next, 32, sum)
			return errors.Join(append(errs[:], mpi.Waitall(rs[:]))...)
		},
		func() error { return w.Accumulate(data, next, 32, sum) },
		func() error { return w.GetAccumulate(data, more, next, 32, sum) },
		func() error { _, err := w.FetchAndOp(1, next, 48, sum); return err },
		func() error { _, err := w.CompareAndSwap(0, 1, next, 49); return err },
		w.FlushAll, w.FlushLocalAll,
		func() error { return w.Lock(next, mpi.Exclusive) },
		func() error { return w.Flush(next) },
		func() error { return w.FlushLocal(next) },
		func() error { return w.Unlock(next) },
		w.LockAll, w.UnlockAll,
		func() error { return w.Post(c.Group()) },
		func() error { return w.Start(c.Group()) },
		w.Complete, w.Wait,
		w.Free,
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
})

// Every call on a window is a slice of its rank, with the rank and the bytes that it names, and so is Finalize.
func TestTrace_HasCallsOnWindows(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			trace := tracedJob(t, 2, tracedWindows, fabric)
			for _, name := range []string{"WinAllocate", "Win.Fence", "Win.Put", "Win.Get", "Win.PutView",
				"Win.GetView", "Win.Rput", "Win.Rget", "Win.Raccumulate", "Win.RgetAccumulate", "Win.Accumulate",
				"Win.GetAccumulate", "Win.FetchAndOp", "Win.CompareAndSwap", "Win.FlushAll", "Win.FlushLocalAll",
				"Win.Lock", "Win.Flush", "Win.FlushLocal", "Win.Unlock", "Win.LockAll", "Win.UnlockAll", "Win.Post",
				"Win.Start", "Win.Complete", "Win.Wait", "Win.Free", "Finalize"} {
				require.Equal(t, 2, trace.Count(perfetto.SliceBegin, name), name)
			}
			for _, e := range trace.Events {
				switch e.Name {
				case "Win.Put", "Win.Get", "Win.PutView", "Win.GetView", "Win.Rput", "Win.Rget", "Win.Accumulate":
					require.EqualValues(t, 128, *e.Notes["bytes"].Number, e.Name)
					require.Contains(t, e.Notes, "peer", e.Name)
				case "Win.FetchAndOp", "Win.CompareAndSwap":
					require.EqualValues(t, 8, *e.Notes["bytes"].Number, e.Name)
				}
			}
		})
	}
}

// What has no room is left out, and the file says so; what is there is right.
func TestTrace_ThatIsTooLong(t *testing.T) {
	trace := tracedJob(t, 2, tracedBody, "tcp", "WEFT_TRACE=20000")
	require.Positive(t, trace.Arrows)
	said := 0
	for _, e := range trace.Events {
		if strings.HasSuffix(e.Name, "events after this are left out") {
			said++
		}
	}
	require.Equal(t, 2, said)
}
