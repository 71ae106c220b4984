package jobtest_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// A hanging is a small program in which ranks wait for ever, and what the report on it says.
type hanging struct {
	name  string
	ranks int
	run   func(c *mpi.Comm) error
	says  []string
}

func recvOne(c *mpi.Comm, src, tag int) error {
	_, err := mpi.Recv(c, make([]int64, 1), src, tag)
	return err
}

func sendOne(c *mpi.Comm, dst, tag int) error { return mpi.Send(c, []int64{1}, dst, tag) }

// hangings have ranks that wait for one another, or for one that will not come.
var hangings = []hanging{
	{"two receive from each other", 2, func(c *mpi.Comm) error { return recvOne(c, 1-c.Rank(), 5+c.Rank()) },
		[]string{"rank 0 waits in Recv from 1, tag 5, at deadlock_test.go:", "neither can go on"}},
	{"three in a ring", 3, func(c *mpi.Comm) error { return recvOne(c, (c.Rank()+1)%3, 1) },
		[]string{"no rank can ever go on", "rank 2 waits in Recv from 0", "none of them can go on"}},
	{"five in a ring of synchronous sends", 5, func(c *mpi.Comm) error {
		return mpi.Ssend(c, []int64{1}, (c.Rank()+1)%5, 1)
	}, []string{"no rank can ever go on", "rank 4 waits in Ssend to 0, tag 1", "none of them can go on"}},
	{"two send much to each other", 2, func(c *mpi.Comm) error {
		return mpi.Send(c, make([]byte, 1<<22), 1-c.Rank(), 1)
	}, []string{"rank 1 waits in Send to 0, tag 1", "neither can go on"}},
	{"a rank receives from itself", 2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return recvOne(c, 1, 1)
		}
		return recvOne(c, 1, 1)
	}, []string{"rank 1 waits in Recv from 1, tag 1", "it waits for itself and cannot go on"}},
	{"another tag", 2, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			if err := sendOne(c, 1, 6); err != nil {
				return err
			}
		}
		return recvOne(c, 1-c.Rank(), 5)
	}, []string{"rank 1: a message from 0 with tag 6 has come; the receive asks for tag 5"}},
	{"another communicator", 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		d.SetName("halo")
		if c.Rank() == 0 {
			if err := sendOne(d, 1, 5); err != nil {
				return err
			}
		}
		return recvOne(c, 1-c.Rank(), 5)
	}, []string{"rank 1: a message from 0 with tag 5 on halo has come; the receive asks for a message on world"}},
	{"a rank that has ended", 3, func(c *mpi.Comm) error {
		if c.Rank() != 0 {
			return nil
		}
		return recvOne(c, 2, 5)
	}, []string{"rank 0 waits in Recv from 2", "rank 2 is in Finalize and sends no more"}},
	{"a barrier that one has not called", 3, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return recvOne(c, 0, 5)
		}
		return mpi.Barrier(c)
	}, []string{"rank 1 has not called Barrier on world", "rank 1 waits in Recv from 0, tag 5"}},
	{"an Allreduce that one has ended before", 3, func(c *mpi.Comm) error {
		if c.Rank() == 2 {
			return nil
		}
		return mpi.Allreduce(c, []int64{1}, []int64{0}, mpi.Sum[int64]())
	}, []string{"rank 2 has not called Allreduce on world", "rank 2 waits in Finalize"}},
	{"the wrong root", 3, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return recvOne(c, 1, 5) // instead of Bcast
		}
		return mpi.Bcast(c, make([]int64, 1), 0)
	}, []string{"rank 0 has not called Bcast on world", "ranks 1-2: Bcast on world"}},
	{"any source", 2, func(c *mpi.Comm) error { return recvOne(c, mpi.AnySource, 5) },
		[]string{"Recv from any source, tag 5", "no rank can ever go on"}},
	{"any tag", 2, func(c *mpi.Comm) error { return recvOne(c, 1-c.Rank(), mpi.AnyTag) },
		[]string{"Recv from 1, any tag"}},
	{"Waitall", 3, func(c *mpi.Comm) error {
		if c.Rank() == 2 {
			return recvOne(c, 0, 9)
		}
		a, err := mpi.Irecv(c, make([]int64, 1), 2, 1)
		if err != nil {
			return err
		}
		b, err := mpi.Irecv(c, make([]int64, 1), 2, 2)
		if err != nil {
			return err
		}
		return mpi.Waitall([]mpi.Request{a, b})
	}, []string{"ranks 0-1: Waitall from 2, tag 1", "rank 2 waits in Recv from 0, tag 9"}},
	{"Waitany", 2, func(c *mpi.Comm) error {
		a, err := mpi.Irecv(c, make([]int64, 1), 1-c.Rank(), 1)
		if err != nil {
			return err
		}
		b, err := mpi.Irecv(c, make([]int64, 1), 1-c.Rank(), 2)
		if err != nil {
			return err
		}
		_, _, err = mpi.Waitany([]mpi.Request{a, b})
		return err
	}, []string{"Waitany for any of 2 requests (recv from 1, tag 1; recv from 1, tag 2)"}},
	{"Sendrecv of different rings", 3, func(c *mpi.Comm) error {
		_, err := mpi.Sendrecv(c, []int64{1}, (c.Rank()+1)%3, 1, make([]int64, 1), (c.Rank()+1)%3, 1)
		return err
	}, []string{"Sendrecv from 1, tag 1", "rank 0: a message from 2 with tag 1 has come; the receive asks for one from 1"}},
	{"a part of the ranks", 4, func(c *mpi.Comm) error {
		d, err := c.Split(c.Rank()%2, 0)
		if err != nil {
			return err
		}
		d.SetName("half")
		if c.Rank()%2 == 0 && d.Rank() == 0 {
			return recvOne(c, 2, 5)
		}
		return mpi.Barrier(d)
	}, []string{"rank 0 has not called Barrier on half", "rank 2: Barrier on half"}},
	{"one of several goroutines", 2, func(c *mpi.Comm) error {
		var all sync.WaitGroup
		for tag := range 3 {
			all.Go(func() { recvOne(c, 1-c.Rank(), tag) })
		}
		all.Wait()
		return nil
	}, []string{"Recv from 1, tag 0", "Recv from 1, tag 1", "Recv from 1, tag 2", "no rank can ever go on"}},
	{"more ranks than cores", 9, func(c *mpi.Comm) error {
		if c.Rank() == 4 {
			return recvOne(c, 3, 8)
		}
		return mpi.Barrier(c)
	}, []string{"rank 4: Recv from 3, tag 8", "rank 4 has not called Barrier on world"}},
	{"two collectives in different orders on two communicators", 2, func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err != nil {
			return err
		}
		first, second := c, d
		if c.Rank() == 1 {
			first, second = d, c
		}
		if err := mpi.Barrier(first); err != nil {
			return err
		}
		return mpi.Barrier(second)
	}, []string{"rank 0: Barrier on world", "rank 1: Barrier on world.", "neither can go on"}},
	{onSeveralEndpoints, 2, func(c *mpi.Comm) error {
		const comms = 3
		var all sync.WaitGroup
		var any []mpi.Request
		for i := range comms {
			d, err := c.Dup()
			if err != nil {
				return err
			}
			d.SetName(string(rune('a' + i)))
			r, err := mpi.Irecv(d, make([]int64, 1), 1-c.Rank(), i)
			if err != nil {
				return err
			}
			any = append(any, r)
			all.Go(func() { recvOne(d, 1-c.Rank(), 10+i) })
			if i == 0 && c.Rank() == 0 {
				all.Go(func() { mpi.Barrier(d) })
			}
		}
		all.Go(func() { mpi.Waitany(any) })
		all.Wait()
		return nil
	}, []string{"rank 0: Recv from 1, tag 10, on a", "rank 0: Recv from 1, tag 11, on b", "rank 0: Recv from 1, tag 12, on c",
		"rank 1: Recv from 0, tag 12, on c", "rank 0: Barrier on a",
		"Waitany for any of 3 requests (recv from 1, tag 0, on a; recv from 1, tag 1, on b; recv from 1, tag 2, on c)",
		"no rank can ever go on"}},
}

const onSeveralEndpoints = "goroutines on communicators of several endpoints"

// hangingBodies are the programs that also run as processes: one for each kind of reason that a report gives.
var hangingBodies = func() map[string]string {
	names := map[string]string{}
	for _, h := range slices.Concat(hangings, hangingsInCalls) {
		switch h.name {
		case "two receive from each other", "another communicator", "a rank that has ended",
			"one of several goroutines", "more ranks than cores", "Waitany",
			"two locks of windows in different orders", "a loop of one round more",
			aMutex, onSeveralEndpoints:
			names[h.name] = body("hanging: "+h.name, func(_ context.Context, c *mpi.Comm) error { return h.run(c) })
		}
	}
	return names
}()

// ofWorld makes a report on a communicator that endpointtest has put in the world's place one on the world,
// which reports do not name, and removes the numbers of endpoints.
func ofWorld(report string) string {
	return regexp.MustCompile(`, on world(@\d)?|@\d\b`).ReplaceAllString(report, "")
}

// aMutex hangs for a mutex, which stops the clock of ranks that share a process.
const aMutex = "a mutex that a goroutine keeps while it receives"

// bothFabrics has every hanging program run on both fabrics, rather than on one of them in turn.
const bothFabrics = "MPI_TEST_BOTH_FABRICS"

func TestDeadlock_ExplainsItself(t *testing.T) {
	require.GreaterOrEqual(t, len(hangings)+len(hangingsInCalls), 40)
	longest := time.Duration(0)
	for _, h := range slices.Concat(hangings, hangingsInCalls) {
		opts := []mpitest.Option(nil)
		if h.name == aMutex { // which is known from the stacks alone
			opts = append(opts, mpitest.Concurrent())
			h.says = []string{"no rank can ever go on", "rank 0: Recv, at deadlock_test.go:",
				"rank 1: sync.Mutex.Lock, at hangingcalls_test.go:"}
		}
		for check, says := range map[string][]string{"off": append(h.says, "deadlock: "), "on": {"_test.go:"}} {
			t.Run("checking mode "+check+"/"+h.name, func(t *testing.T) {
				begun := time.Now()
				err := mpitest.Try(t, h.ranks, func(_ context.Context, c *mpi.Comm) error { return h.run(c) },
					append(opts, mpitest.Config(mpi.Config{Settings: map[string]string{"WEFT_CHECK": check}}))...)
				longest = max(longest, time.Since(begun))
				require.Error(t, err)
				for _, text := range says {
					require.Contains(t, err.Error(), text)
				}
			})
		}
	}
	t.Logf("a deadlock takes %v at most", longest)
}

func TestDeadlock_ExplainsItselfToTheLauncher(t *testing.T) {
	t.Parallel()
	turn := 0
	for _, h := range slices.Concat(hangings, hangingsInCalls) {
		if hangingBodies[h.name] == "" {
			continue
		}
		fabrics := []string{"shm", "tcp"}
		if os.Getenv(bothFabrics) == "" {
			fabrics = fabrics[turn%2:][:1]
		}
		turn++
		if turn%3 != 0 {
			fabrics = testlength.InShort(fabrics, nil)
		}
		for _, fabric := range fabrics {
			t.Run(fabric+"/"+h.name, func(t *testing.T) {
				t.Parallel()
				r := launchertest.Run(t,
					launchertest.Ranks(h.ranks, hangingBodies[h.name], "WEFT_FABRIC="+fabric, "WEFT_ENDPOINTS=3"))
				require.Equal(t, launcher.Deadlocked, r.Cause(t).How, r.Err)
				report := ofWorld(r.Err)
				for _, text := range h.says {
					require.Contains(t, report, text)
				}
			})
		}
	}
}

// A goroutineStuck waits for ever beside one that works: nobody can prove that it will not be released.
var goroutineStuck = body("a goroutine that is stuck beside one that works", func(ctx context.Context,
	c *mpi.Comm) error {
	go recvOne(c, 1-c.Rank(), 5+c.Rank())
	for {
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
})

// What is not proven is told, too, when nothing has moved for long.
func TestDeadlock_TellsOfAStuckGoroutine(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	told := make(chan string, 1)
	go func() { // ends the job when it has been told, whenever that is
		text := ""
		for buf := make([]byte, 1<<16); !strings.Contains(text, "rank 1: Recv from 0, tag 6"); {
			n, err := r.Read(buf)
			text += string(buf[:n])
			if err != nil {
				break
			}
		}
		told <- text
		cancel()
		io.Copy(io.Discard, r)
	}()
	err = launcher.Run(ctx, launcher.Job{Apps: []launcher.App{launchertest.Ranks(2, goroutineStuck)},
		Timeout: 2 * time.Minute, Stuck: time.Second, StuckAction: launcher.AbortStuck, Stdin: launcher.InputNone, Out: w, Err: w})
	w.Close()
	text := <-told
	require.Error(t, err, "it has been ended")
	text = ofWorld(text)
	require.Contains(t, text, "weft: nothing has moved for 1s; what the ranks do\n")
	require.Contains(t, text, "rank 0: Recv from 1, tag 5, at deadlock_test.go:")
	require.Contains(t, text, "rank 1: Recv from 0, tag 6, at deadlock_test.go:")
	require.NotContains(t, text, "deadlock:")
}

// withoutInit has rank 1 call Init when a file is there.
var withoutInit = launchertest.Body("one that is late for Init", func() error {
	for os.Getenv("PMI_RANK") == "1" {
		if _, err := os.Stat(os.Getenv("TEST_GO_ON")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return mpi.Run(context.Background(), func(_ context.Context, c *mpi.Comm) error { return mpi.Barrier(c) })
})

// The report names the ranks that have not called Init, while others wait in it.
func TestDeadlock_TellsWhoHasNotCalledInit(t *testing.T) {
	t.Parallel()
	goOn := filepath.Join(t.TempDir(), "go on")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	told := make(chan string, 1)
	go func() { // lets rank 1 go on when it has been told
		text := ""
		for buf := make([]byte, 1<<16); ; {
			n, err := r.Read(buf)
			if text += string(buf[:n]); strings.Contains(text, "which other ranks wait in") {
				os.WriteFile(goOn, nil, 0o600)
			}
			if err != nil {
				break
			}
		}
		told <- text
	}()
	err = launcher.Run(t.Context(), launcher.Job{Apps: []launcher.App{launchertest.Ranks(3, withoutInit,
		"TEST_GO_ON="+goOn)}, Timeout: 2 * time.Minute, Stuck: time.Second, StuckAction: launcher.AbortStuck,
		Stdin: launcher.InputNone, Out: w, Err: w})
	w.Close()
	text := <-told
	require.NoError(t, err, text)
	require.Contains(t, text, "weft: nothing has moved for 1s; what the ranks do\n")
	require.Contains(t, text, "weft:   rank 1: has not called Init\n")
	require.Regexp(t, `weft:   ranks 0,2: Init, at deadlock_test.go:\d+, for \d`, text)
	require.Contains(t, text, "weft:   rank 1 has not called Init, which other ranks wait in\n")
	require.NotContains(t, text, "deadlock:")
}

// Programs that communicate at random, and much, are never taken for a deadlock, also where their ranks get
// the processor seldom.
func TestDeadlock_IsNoneInTheMixture(t *testing.T) {
	t.Parallel()
	r := launchertest.Run(t, launchertest.Ranks(6, busyBody))
	require.NoError(t, r.Failure, r.Err)
	require.NotContains(t, r.Err, "deadlock")
}

var busyBody = body("busy for a while", func(_ context.Context, c *mpi.Comm) error {
	in, out := []int64{0}, []int64{0}
	for begun := time.Now(); ; {
		if _, err := mpi.Sendrecv(c, in, (c.Rank()+1)%c.Size(), 1, out, (c.Rank()+c.Size()-1)%c.Size(),
			1); err != nil {
			return err
		}
		if in[0] = 0; time.Since(begun) > 1500*time.Millisecond {
			in[0] = 1
		}
		if err := mpi.Allreduce(c, in, out, mpi.Max[int64]()); err != nil {
			return err
		}
		if out[0] == 1 {
			return nil
		}
	}
})
