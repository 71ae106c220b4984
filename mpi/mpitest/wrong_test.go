package mpitest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// wrongVariable has TestWrong run the wrong programs, each of which fails.
const wrongVariable = "MPITEST_WRONG"

// program has a mistake, and this is what the output must and must not have.
type program struct {
	name  string
	test  func(t *testing.T)
	want  []string
	never []string
}

var wrong = []program{
	{"an error", runs(3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			return errors.New("boom")
		}
		return mpi.Barrier(world)
	}), []string{`wrong_test.go:\d+: rank 1: boom`}, []string{"rank 0", "rank 2", "deadlock"}},

	{"a panic", runs(3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 2 {
			panic("over")
		}
		return mpi.Barrier(world)
	}), []string{`rank 2: panic: over`, `wrong_test.go:\d+ `}, []string{"rank 0", "rank 1", `mpitest\.\(\*`}},

	{"Fatal", runs(3, func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			mpitest.T(ctx).Fatal("no good")
		}
		return mpi.Barrier(world)
	}), []string{`wrong_test.go:\d+: rank 1: no good`, "rank 1: the body has not returned: FailNow"},
		[]string{"rank 0", "rank 2"}},

	{"Errorf", runs(2, func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			mpitest.T(ctx).Errorf("%d is wrong", 7)
		}
		return mpi.Barrier(world)
	}), []string{`wrong_test.go:\d+: rank 1: 7 is wrong`}, []string{"rank 0", "has not returned"}},

	{"FailNow of the test", func(t *testing.T) {
		mpitest.Run(t, 3, func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() == 1 {
				require.Equal(t, 1, 2)
			}
			return mpi.Barrier(world)
		})
	}, []string{"rank 1: the body has not returned: FailNow", "Not equal"}, []string{"rank 0:", "rank 2:"}},

	{"Abort", runs(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			world.Abort(3)
		}
		return mpi.Barrier(world)
	}), []string{`rank 1: job aborted: Abort\(3\) has been called`}, []string{"rank 0"}},

	{"receives from each other", runs(3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 2 {
			return nil
		}
		_, err := mpi.Recv(world, make([]int, 1), 1-world.Rank(), 5)
		return err
	}), []string{"deadlock: no rank can ever go on",
		`rank 0: Recv from 1, tag 5, at wrong_test.go:\d+`, `rank 1: Recv from 0, tag 5, at wrong_test.go:\d+`,
		"rank 2: Finalize", "neither can go on"}, []string{"aborted"}},

	{"waits for a lock", runs(2, func(_ context.Context, world *mpi.Comm) error {
		w, err := mpi.WinAllocate[int](world, 1)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			if err := w.Lock(0, true); err != nil {
				return err
			}
			if err := mpi.Send(world, []int{1}, 1, 0); err != nil {
				return err
			}
			_, err := mpi.Recv(world, make([]int, 1), 1, 0)
			return err
		}
		if _, err := mpi.Recv(world, make([]int, 1), 0, 0); err != nil {
			return err
		}
		return w.Lock(0, true)
	}), []string{"deadlock: no rank can ever go on", "rank 1: Lock of rank 0's part"}, []string{"aborted"}},

	{"a tick does not help", runs(2, func(ctx context.Context, world *mpi.Comm) error {
		go func() {
			for ticker := time.NewTicker(time.Second); ; {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		}()
		_, err := mpi.Recv(world, make([]int, 1), 1-world.Rank(), 5)
		return err
	}), []string{"deadlock: no rank can ever go on"}, nil},

	{"a channel that nobody closes", runs(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			<-make(chan int)
		}
		return mpi.Barrier(world)
	}), []string{"deadlock: no rank can ever go on", "rank 0: Barrier on world",
		`rank 1: in no call of weft, at wrong_test.go:\d+ \[chan receive\]`,
		`rank 1: the body does not return, though the job has ended: it waits at wrong_test.go:\d+ \[chan receive\]`},
		nil},

	{"the others are done", runs(3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			select {}
		}
		return nil
	}), []string{"ranks 0,2: Finalize", `rank 1: the body does not return`}, nil},

	{"a goroutine is left", runs(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			go func() { <-make(chan int) }()
		}
		return nil
	}), []string{`rank 1: a goroutine outlives the body: it was started at wrong_test.go:\d+, and is at ` +
		`wrong_test.go:\d+ \[chan receive\]`}, []string{"rank 0"}},

	{"a message is left", runs(2, func(_ context.Context, world *mpi.Comm) error {
		return mpi.Send(world, []int{1}, 1-world.Rank(), 4)
	}), []string{`rank 0: message never received: from rank 1, tag 4, on world, sent at wrong_test.go:\d+`,
		`rank 1: message never received`}, nil},

	{"a request is left", runs(1, func(_ context.Context, world *mpi.Comm) error {
		_, err := mpi.Irecv(world, make([]int, 1), 0, 4)
		return err
	}), []string{`rank 0: request never waited for: Irecv from rank 0, tag 4, on world at wrong_test.go:\d+`}, nil},

	{"a communicator is left", runs(2, func(_ context.Context, world *mpi.Comm) error {
		_, err := world.Dup()
		return err
	}), []string{`rank 0: communicator never freed: world.\d+, made by Dup at wrong_test.go:\d+`,
		`rank 1: communicator never freed`}, nil},

	{"a window is left", runs(2, func(_ context.Context, world *mpi.Comm) error {
		_, err := mpi.WinAllocate[int](world, 1)
		return err
	}), []string{`rank 0: window never freed: world.\d+, made by WinAllocate at wrong_test.go:\d+`,
		`rank 1: window never freed`}, []string{"communicator never freed"}},

	{"different collectives", runs(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			return mpi.Bcast(world, make([]int, 1), 0)
		}
		return mpi.Barrier(world)
	}), []string{"different collective", `wrong_test.go:\d+`}, []string{"deadlock"}},

	{"no rank", runs(0, func(context.Context, *mpi.Comm) error { return nil }),
		[]string{"Run with 0 ranks: a job has at least one"}, nil},

	{"no body", runs(1, nil), []string{"Run without a body"}, nil},

	{"Run in Run", func(t *testing.T) {
		mpitest.Run(t, 2, func(context.Context, *mpi.Comm) error {
			mpitest.Run(t, 2, func(context.Context, *mpi.Comm) error { return nil })
			return nil
		})
	}, []string{`wrong_test.go:\d+: mpitest: Run inside another Run or synctest.Test`}, nil},

	{"mpi.Run in Run", runs(2, func(ctx context.Context, _ *mpi.Comm) error {
		return mpi.Run(ctx, func(context.Context, *mpi.Comm) error { return nil })
	}), []string{`rank \d: mpi: Init: called a second time`}, nil},

	{"mpi.Run with another context", runs(1, func(context.Context, *mpi.Comm) error {
		return mpi.Run(context.Background(), func(context.Context, *mpi.Comm) error { return nil })
	}), []string{"rank 0: mpi: Init: not with the context of the body"}, nil},

	{"Kill over a real fabric", func(t *testing.T) {
		mpitest.Run(t, 1, func(context.Context, *mpi.Comm) error { return nil }, mpitest.Fabric("tcp"),
			mpitest.Kill(0, 1))
	}, []string{`Fabric\("tcp"\) with Kill, Slow or SlowLink`}, nil},

	{"LoseLane on the simulated network", func(t *testing.T) {
		mpitest.Run(t, 1, func(context.Context, *mpi.Comm) error { return nil }, mpitest.LoseLane(0, 1))
	}, []string{`LoseLane without Fabric\("tcp"\)`}, nil},

	{"no such fabric", func(t *testing.T) {
		mpitest.Run(t, 1, func(context.Context, *mpi.Comm) error { return nil }, mpitest.Fabric("ib"))
	}, []string{`wrong_test.go:\d+: mpitest: Fabric: unknown fabric "ib"; choose shm, tcp or auto, and sim`}, nil},

	{"receives from each other over TCP", over("tcp", 3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 2 {
			return nil
		}
		_, err := mpi.Recv(world, make([]int, 1), 1-world.Rank(), 5)
		return err
	}), []string{"deadlock: no rank can ever go on", `rank 0: Recv from 1, tag 5, at wrong_test.go:\d+`,
		`rank 1: Recv from 0, tag 5, at wrong_test.go:\d+`, "neither can go on"}, []string{"aborted"}},

	{"a panic over TCP", over("tcp", 3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 2 {
			panic("over")
		}
		return mpi.Barrier(world)
	}), []string{`rank 2: panic: over`, `wrong_test.go:\d+ `}, []string{"rank 0", "rank 1", `mpitest\.\(\*`}},

	{"Fatal over shared memory", over("shm", 2, func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			mpitest.T(ctx).Fatal("no good")
		}
		return mpi.Barrier(world)
	}), []string{`wrong_test.go:\d+: rank 1: no good`}, []string{"rank 0"}},

	{"a message is left in shared memory", over("shm", 2, func(_ context.Context, world *mpi.Comm) error {
		return mpi.Send(world, []int{1}, 1-world.Rank(), 4)
	}), []string{`rank 0: message never received: from rank 1, tag 4, on world, sent at wrong_test.go:\d+`}, nil},

	{"a goroutine is left over TCP", over("tcp", 2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			go func() { <-make(chan int) }()
		}
		return nil
	}), []string{`rank 1: a goroutine outlives the body: it was started at wrong_test.go:\d+, and is at ` +
		`wrong_test.go:\d+ \[chan receive\]`}, []string{"rank 0"}},

	{"a body does not return over TCP", over("tcp", 2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			select {}
		}
		return errors.New("boom")
	}), []string{"rank 0: boom", `rank 1: the body does not return, though the job has ended: it waits at ` +
		`wrong_test.go:\d+ \[select \(no cases\)\], and not for its context`}, nil},

	{"Run in Run over TCP", func(t *testing.T) {
		mpitest.Run(t, 1, func(context.Context, *mpi.Comm) error {
			mpitest.Run(t, 2, func(context.Context, *mpi.Comm) error { return nil })
			return nil
		}, mpitest.Fabric("tcp"))
	}, []string{"rank 0: panic: mpitest: Run with .* is called by a goroutine that is not its own"}, nil},

	{"a goroutine sleeps again and again", runs(1, func(context.Context, *mpi.Comm) error {
		go func() {
			for {
				time.Sleep(time.Second)
			}
		}()
		return nil
	}), []string{`rank 0: a goroutine outlives the body: it was started at wrong_test.go:\d+, and is at ` +
		`wrong_test.go:\d+ \[sleep\]`}, nil},

	{"a body sleeps again and again", runs(2, func(_ context.Context, world *mpi.Comm) error {
		for world.Rank() == 1 {
			time.Sleep(time.Second)
		}
		return nil
	}), []string{"no message has moved for 2h0m0s of the ranks' time", "rank 0: Finalize",
		`rank 1: the body does not return, though the job has ended: it waits at wrong_test.go:\d+ \[sleep\]`}, nil},

	{"the test above", func(t *testing.T) {
		t.Run("sub", func(sub *testing.T) {
			defer func() { sub.Fatal(recover()) }()
			mpitest.Run(t, 1, func(context.Context, *mpi.Comm) error { return nil })
		})
	}, []string{`Run with the \*testing.T of .*/the_test_above is called by a goroutine that is not its own`}, nil},

	{"Alloc of the process", runs(1, func(context.Context, *mpi.Comm) error {
		_, err := mpi.Alloc[int](1)
		return err
	}), []string{"rank 0: mpi: Alloc: Init has not been called in this process; ranks .* use AllocOn"}, nil},

	{"no communicator", runs(1, func(context.Context, *mpi.Comm) error { return mpi.Barrier(nil) }),
		[]string{"rank 0: mpi: Barrier: invalid communicator: nil"}, nil},

	{"the test has ended", func(t *testing.T) {
		var ended *testing.T
		t.Run("sub", func(t *testing.T) { ended = t })
		defer func() { t.Fatal(recover()) }()
		mpitest.Run(ended, 1, func(context.Context, *mpi.Comm) error { return nil })
	}, []string{`Run with the \*testing.T of .*/sub, which has ended`}, nil},

	{"T of another context", func(t *testing.T) {
		defer func() { t.Fatal(recover()) }()
		mpitest.T(t.Context())
	}, []string{"T needs the context that Run gives a body"}, nil},
}

func over(fabric string, n int, body mpitest.Body) func(t *testing.T) {
	return func(t *testing.T) { mpitest.Run(t, n, body, mpitest.Fabric(fabric)) }
}

func runs(n int, body mpitest.Body) func(t *testing.T) {
	return func(t *testing.T) { mpitest.Run(t, n, body) }
}

// TestWrong runs the wrong programs in a process of their own, in which they fail, and looks at what they say.
func TestWrong(t *testing.T) {
	if os.Getenv(wrongVariable) != "" {
		mpitest.WaitLess()
		for _, w := range wrong {
			t.Run(w.name, w.test)
		}
		return
	}
	t.Parallel()
	listing, failed, _ := strings.Cut(outputOf(t, "TestWrong", "-test.v"), "--- FAIL: TestWrong ")
	said := map[string]string{}
	for part := range strings.SplitSeq(listing, "=== RUN   TestWrong/") {
		head, text, _ := strings.Cut(part, "\n")
		name, _, _ := strings.Cut(head, "/") // of a subtest too
		said[name] += text
	}
	for _, w := range wrong {
		t.Run(w.name, func(t *testing.T) {
			name := strings.ReplaceAll(w.name, " ", "_")
			require.Contains(t, failed, "--- FAIL: TestWrong/"+name+" (")
			for _, pattern := range w.want {
				require.Regexp(t, pattern, said[name])
			}
			for _, pattern := range w.never {
				require.NotRegexp(t, pattern, said[name])
			}
		})
	}
}

// outputOf runs a test that fails in a process of its own.
func outputOf(t *testing.T, test string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(flags, "-test.run=^"+test+"$")...)
	cmd.Env = append(os.Environ(), wrongVariable+"=1")
	out, err := cmd.CombinedOutput()
	var status *exec.ExitError
	require.ErrorAs(t, err, &status)
	return string(out)
}

// readForEver blocks in a system call, which stops the ranks' clock.
func readForEver() error {
	r, _, err := os.Pipe()
	if err != nil {
		return err
	}
	_, err = r.Read(make([]byte, 1))
	return err
}

// A body that blocks in a system call is told of when the time of the tests is over.
func TestRun_AtTheDeadline(t *testing.T) {
	if os.Getenv(wrongVariable) != "" {
		mpitest.Run(t, 2, func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() == 1 {
				return readForEver()
			}
			return nil
		})
	}
	t.Parallel()
	require.Regexp(t, `mpitest: TestRun_AtTheDeadline comes to the deadline of the tests:\n`+
		`(.*\n)*  rank 1: wrong_test.go:\d+ \[IO wait\]\n`, outputOf(t, "TestRun_AtTheDeadline", "-test.timeout=4s"))
}

// A goroutine that blocks in a system call when the bodies have returned ends the tests.
func TestRun_GoroutineThatRunsOn(t *testing.T) {
	if os.Getenv(wrongVariable) != "" {
		mpitest.WaitLess()
		mpitest.Run(t, 2, func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() == 1 {
				go readForEver()
			}
			return nil
		}, mpitest.Concurrent())
	}
	t.Parallel()
	require.Regexp(t, `panic: mpitest: TestRun_GoroutineThatRunsOn: the bodies have returned, and goroutines that they `+
		`have started run on:\n(.*\n)*\s+rank 1: wrong_test.go:\d+ \[IO wait\]\n`,
		outputOf(t, "TestRun_GoroutineThatRunsOn"))
}
