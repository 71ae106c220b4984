package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// slowPrograms are right, however long they take.
var slowPrograms = []struct {
	name string
	run  func(ctx context.Context, c *mpi.Comm) error
}{
	{"one sleeps", func(_ context.Context, c *mpi.Comm) error {
		if c.Rank() == 0 {
			time.Sleep(4 * time.Second)
		}
		return mpi.Barrier(c)
	}},
	{"a goroutine sends later", func(_ context.Context, c *mpi.Comm) error {
		go func() {
			time.Sleep(4 * time.Second)
			sendOne(c, c.Rank(), 1)
		}()
		return recvOne(c, c.Rank(), 1)
	}},
	{"a wait that ends by itself", func(ctx context.Context, c *mpi.Comm) error {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		if err := recvOne(c.WithContext(ctx), 1-c.Rank(), 1); err == nil {
			panic("nobody has sent")
		}
		return nil
	}},
	{"a goroutine that a channel releases", func(_ context.Context, c *mpi.Comm) error {
		if c.Rank() == 0 {
			<-time.After(4 * time.Second)
			return sendOne(c, 1, 1)
		}
		return recvOne(c, 0, 1)
	}},
	{"a lock of a window that one keeps for long", func(_ context.Context, c *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](c, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := w.Lock(1, mpi.Exclusive); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if c.Rank() == 0 {
			time.Sleep(4 * time.Second)
		} else if err := w.Lock(1, mpi.Exclusive); err != nil {
			return err
		}
		if err := w.Unlock(1); err != nil {
			return err
		}
		return w.Free()
	}},
	{"one computes", func(_ context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			for begun := time.Now(); time.Since(begun) < 4*time.Second; {
				runtime.Gosched()
			}
		}
		return mpi.Allreduce(c, []int64{1}, []int64{0}, mpi.Sum[int64]())
	}},
	{"a token that goes around slowly", func(_ context.Context, c *mpi.Comm) error {
		for range 3 {
			if c.Rank() == 0 {
				time.Sleep(1300 * time.Millisecond)
				if err := errors.Join(mpi.Ssend(c, []int64{1}, 1, 1), recvOne(c, 1, 1)); err != nil {
					return err
				}
			} else if err := errors.Join(recvOne(c, 0, 1), mpi.Ssend(c, []int64{1}, 0, 1)); err != nil {
				return err
			}
		}
		return nil
	}},
	{"one is stopped", func(_ context.Context, c *mpi.Comm) error {
		if c.Rank() == 0 {
			if err := command("sh", "-c", "sleep 8; kill -CONT $PPID").Start(); err != nil {
				return err
			}
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return err
			}
			return sendOne(c, 1, 1)
		}
		return recvOne(c, 0, 1)
	}},
}

func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// debugged is a program that a debugger stops for some seconds, while another rank waits for it.
var debugged = body("slow: in a debugger", func(_ context.Context, c *mpi.Comm) error {
	if c.Rank() == 1 {
		return recvOne(c, 0, 1)
	}
	cmd := command(os.Args[0])
	cmd.Env = append(os.Environ(), launchertest.Environ(debugger)...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the debugger: %w", err)
	}
	return sendOne(c, 1, 1)
})

// debugger stops all threads of its parent, as a debugger does, and lets them go when it ends.
var debugger = launchertest.Body("a debugger", func() error {
	runtime.LockOSThread()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", os.Getppid()))
	var stopped []int
	for _, task := range tasks {
		tid, _ := strconv.Atoi(filepath.Base(task))
		e := syscall.PtraceAttach(tid)
		if e == nil {
			_, e = syscall.Wait4(tid, nil, syscall.WALL, nil)
			stopped = append(stopped, tid)
		}
		err = errors.Join(err, e)
	}
	time.Sleep(6 * time.Second)
	for _, tid := range stopped {
		err = errors.Join(err, syscall.PtraceDetach(tid))
	}
	return err
})

var slowBodies = func() []string {
	var names []string
	for _, p := range slowPrograms {
		names = append(names, body("slow: "+p.name, p.run))
	}
	return append(names, debugged)
}()

// slowRounds is how many runs of slow programs there are.
const slowRounds = "MPI_TEST_SLOW_RUNS"

// A program that is slow is not taken for a deadlock.
func TestDeadlock_IsNoneWhereSomethingMayHappen(t *testing.T) {
	t.Parallel()
	runs := len(slowPrograms) // without the debugger, which not every system lets its user have
	if n, err := strconv.Atoi(os.Getenv(slowRounds)); err == nil {
		runs = n
	}
	for i := range runs {
		name := slowBodies[i%len(slowBodies)]
		t.Run(fmt.Sprint(i, " ", name), func(t *testing.T) {
			t.Parallel()
			r := launchertest.Run(t, launchertest.Ranks(2, name,
				"WEFT_FABRIC="+[]string{"shm", "tcp"}[i/len(slowBodies)%2], "WEFT_PEER_TIMEOUT=1m"))
			require.NoError(t, r.Failure, r.Err)
			require.NotContains(t, r.Err, "deadlock")
		})
	}
}
