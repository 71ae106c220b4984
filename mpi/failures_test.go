package mpi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/mpi"
)

// waits are the blocking calls, as rank 0 makes them while rank 1, which it has to do with in each, will never answer. Each gets a
// communicator of its own.
var waits = []struct {
	name string
	call func(c *mpi.Comm) error
}{
	{"Recv", func(c *mpi.Comm) error { return second(mpi.Recv(c, large(), 1, 0)) }},
	{"Recv from any source", func(c *mpi.Comm) error { return second(mpi.Recv(c, large(), mpi.AnySource, mpi.AnyTag)) }},
	{"Send", func(c *mpi.Comm) error { return mpi.Send(c, large(), 1, 0) }},
	{"RecvVec", func(c *mpi.Comm) error { return second(mpi.RecvVec(c, [][]byte{make([]byte, 10), make([]byte, many)}, 1, 0)) }},
	{"SendVec", func(c *mpi.Comm) error { return mpi.SendVec(c, [][]byte{make([]byte, 10), make([]byte, 8*many)}, 1, 0) }},
	{"Ssend", func(c *mpi.Comm) error { return mpi.Ssend(c, large()[:1], 1, 0) }},
	{"Sendrecv", func(c *mpi.Comm) error { return second(mpi.Sendrecv(c, large(), 1, 0, large(), 1, 0)) }},
	{"Probe", func(c *mpi.Comm) error { return second(mpi.Probe(c, 1, 0)) }},
	{"Probe of any source", func(c *mpi.Comm) error { return second(mpi.Probe(c, mpi.AnySource, 0)) }},
	{"Mprobe", func(c *mpi.Comm) error { return third(mpi.Mprobe(c, 1, 0)) }},
	{"Mprobe of any source", func(c *mpi.Comm) error { return third(mpi.Mprobe(c, mpi.AnySource, 0)) }},
	{"Wait of Irecv", func(c *mpi.Comm) error { return waited(mpi.Irecv(c, large(), 1, 0)) }},
	{"Wait of Isend", func(c *mpi.Comm) error { return waited(mpi.Isend(c, large(), 1, 0)) }},
	{"Wait of Issend", func(c *mpi.Comm) error { return waited(mpi.Issend(c, large()[:1], 1, 0)) }},
	{"Waitall", func(c *mpi.Comm) error { return several3(c, mpi.Waitall) }},
	{"Waitany", func(c *mpi.Comm) error {
		return several3(c, func(rs []mpi.Request) error { return third(mpi.Waitany(rs)) })
	}},
	{"Waitsome", func(c *mpi.Comm) error {
		return several3(c, func(rs []mpi.Request) error { return second(mpi.Waitsome(rs, nil)) })
	}},
	{"Start", func(c *mpi.Comm) error {
		p, err := mpi.RecvInit(c, large(), 1, 0)
		if err != nil {
			return err
		}
		return waited(p.Start())
	}},
	{"Barrier", mpi.Barrier},
	{"Bcast", func(c *mpi.Comm) error { return mpi.Bcast(c, large(), 1) }},
	{"Bcast from here", func(c *mpi.Comm) error { return mpi.Bcast(c, large(), 0) }},
	{"Reduce", func(c *mpi.Comm) error { return mpi.Reduce(c, large(), large(), mpi.Sum[int64](), 0) }},
	{"Allreduce", func(c *mpi.Comm) error { return mpi.Allreduce(c, large(), large(), mpi.Sum[int64]()) }},
	{"Gather", func(c *mpi.Comm) error { return mpi.Gather(c, large(), make([]int64, 2*many), 0) }},
	{"Dup", func(c *mpi.Comm) error { return second(c.Dup()) }},
	{"Split", func(c *mpi.Comm) error { return second(c.Split(0, 0)) }},
}

// many elements are more than any slot carries, so that every message needs its receiver.
const many = 50_000

func large() []int64 { return make([]int64, many) }

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

func waited(r mpi.Request, err error) error {
	if err != nil {
		return err
	}
	return second(r.Wait())
}

func several3(c *mpi.Comm, wait func([]mpi.Request) error) error {
	rs := make([]mpi.Request, 3)
	for i := range rs {
		var err error
		if rs[i], err = mpi.Irecv(c, large(), 1, i); err != nil {
			return err
		}
	}
	first := wait(rs)
	return errors.Join(first, mpi.Waitall(rs)) // what was not waited for yet
}

// lostRank wants an error of mpi that says which process has failed.
func lostRank(what string, err error, rank int) error {
	var e *mpi.Error
	if !errors.As(err, &e) || !errors.Is(err, mpi.ErrProcFailed) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d", rank)) {
		return fmt.Errorf("%s: got %v; want ErrProcFailed of rank %d", what, err, rank)
	}
	return nil
}

// survivor makes every blocking call at once, tells when all of them wait, and checks that each ends with the failure of rank 1: those that
// wait, and then those that begin when it is known. Nothing of the fabric is left behind Finalize.
func survivor(world *mpi.Comm, comms []*mpi.Comm) error {
	errs := make([]error, len(waits))
	done := make(chan int)
	for i, w := range waits {
		go func() {
			errs[i] = w.call(comms[i])
			done <- i
		}()
	}
	for !allAsleep(len(waits)) {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("waiting")
	for range waits {
		<-done
	}
	last := time.Now()
	for i, w := range waits {
		if err := lostRank(w.name, errs[i], 1); err != nil {
			return err
		}
	}
	fmt.Println("ended", last.UnixNano())
	fmt.Println(errs[0])
	for i, w := range waits {
		if err := lostRank(w.name+", begun behind the failure", w.call(comms[i]), 1); err != nil {
			return err
		}
	}
	if err := lostRank("Finalize", mpi.Finalize(), 1); err != nil {
		return err
	}
	if err := nothingLeft(); err != nil {
		return err
	}
	fmt.Println("well")
	os.Exit(0)
	return nil
}

// allAsleep tells whether n goroutines wait in the engine: on a channel of their own, or, one of them, in its poller.
func allAsleep(n int) bool {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	return bytes.Count(b, []byte("engine.(*Engine).sleep(")) == n
}

// nothingLeft wants no socket, no poller, no goroutine and no registered memory of the fabric to be left in the process.
func nothingLeft() error {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	own := 0 // epoll and eventfd of Go itself
	for _, f := range list {
		what, _ := os.Readlink(filepath.Join("/proc/self/fd", f.Name()))
		switch {
		case strings.HasPrefix(what, "socket:"):
			return fmt.Errorf("descriptor %s is left: %s", f.Name(), what)
		case strings.HasPrefix(what, "anon_inode:"):
			own++
		}
	}
	if own > 2 {
		return fmt.Errorf("%d pollers are left", own)
	}
	return goleak.Find(goleak.IgnoreTopFunction("github.com/weft-mpi/weft/mpi.Run"), goleak.IgnoreTopFunction("main.main"))
}

// cutOff has the kernel drop whatever comes for the connections of this process: with the same at the other end, the cable is cut.
func cutOff() (sockets int, err error) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	nothing := []syscall.SockFilter{*syscall.LsfStmt(syscall.BPF_RET|syscall.BPF_K, 0)}
	for _, f := range list {
		fd, _ := strconv.Atoi(f.Name())
		if _, err := syscall.Getpeername(fd); err != nil {
			continue
		}
		if domain, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_DOMAIN); err != nil || domain == syscall.AF_UNIX {
			continue
		}
		if err := syscall.AttachLsf(fd, nothing); err != nil {
			return sockets, err
		}
		sockets++
	}
	return sockets, nil
}

// failing is the life of two ranks, of which rank 1 is to fail while rank 0 waits for it.
var failing = body("failing", func(_ context.Context, world *mpi.Comm) error {
	comms := make([]*mpi.Comm, len(waits))
	for i := range comms {
		var err error
		if comms[i], err = world.Dup(); err != nil {
			return err
		}
	}
	go func() {
		if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); line == "cut\n" {
			n, err := cutOff()
			fmt.Println("cut", n, err)
		}
	}()
	if world.Rank() == 0 {
		return survivor(world, comms)
	}
	fmt.Println("waiting")
	err := second(mpi.Recv(world, large(), 0, 99))
	if err := lostRank("Recv", err, 0); err != nil {
		return err
	}
	fmt.Println("lost:", err)
	fmt.Println("well")
	os.Exit(0)
	return nil
})

// strike lets rank 0 end, and tells how long after the fault the last of its calls did.
func (j *processes) strike(fault func()) {
	j.t.Helper()
	j.says(1, "waiting")
	j.says(0, "waiting")
	struck := time.Now()
	fault()
	j.ranks[0].input.(io.Closer).Close()
	ended, err := strconv.ParseInt(j.says(0, "ended "), 10, 64)
	require.NoError(j.t, err)
	j.t.Logf("all %d calls had ended %v after the fault", len(waits), time.Unix(0, ended).Sub(struck).Round(10*time.Microsecond))
	j.says(0, "well")
}

// A killed rank is known by the end of its connections: no timeout has a part in it.
func TestKilledRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1h")
	j.strike(func() { j.signal(1, syscall.SIGKILL) })
}

// A stopped rank's kernel goes on acknowledging. When the rank goes on it learns that it was given up.
func TestStoppedRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1s")
	j.strike(func() {
		j.signal(1, syscall.SIGSTOP)
		j.stopped(1)
	})
	j.signal(1, syscall.SIGCONT)
	t.Log(j.says(1, "lost: "))
	j.says(1, "well")
}

// With the cable cut both ends find the other gone.
func TestCutOffRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1s")
	j.strike(func() {
		for rank := range j.ranks {
			j.tell(rank, "cut")
		}
		for rank := range j.ranks {
			require.Equal(t, "1 <nil>", j.says(rank, "cut "), "one connection is cut off")
		}
	})
	require.Contains(t, j.says(1, "lost: "), "silent for 1s")
	j.says(1, "well")
}

// exchange sends much both ways, so that sockets are full most of the time, until it is told to end.
var exchange = body("exchange", func(_ context.Context, world *mpi.Comm) error {
	var enough atomic.Bool
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		enough.Store(true)
	}()
	other := 1 - world.Rank()
	out, in := make([]int64, 1<<20), make([]int64, 1<<20)
	for round := 0; ; round++ {
		for i := range out {
			out[i] = int64(world.Rank()<<40 + round<<20 + i)
		}
		if enough.Load() && world.Rank() == 0 {
			out[0] = -1
		}
		if _, err := mpi.Sendrecv(world, out, other, 0, in, other, 0); err != nil {
			return err
		}
		if out[0] < 0 || in[0] < 0 {
			break
		}
		for i, v := range in {
			if v != int64(other<<40+round<<20+i) {
				return fmt.Errorf("round %d: element %d is %#x", round, i, v)
			}
		}
		fmt.Println("round", round)
	}
	fmt.Println("well")
	return nil
})

// A job that is stopped as a whole, as Ctrl-Z does it, for much longer than the timeout, goes on: who was not running himself holds nobody's
// silence against him.
func TestStoppedJobGoesOn(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, exchange, "WEFT_PEER_TIMEOUT=300ms")
	for i := range 3 {
		j.says(0, "round")
		j.says(1, "round")
		for rank := range j.ranks {
			j.signal((rank+i)%2, syscall.SIGSTOP)
			j.stopped((rank + i) % 2)
		}
		time.Sleep(time.Second)
		for rank := range j.ranks {
			j.signal(rank, syscall.SIGCONT)
		}
	}
	j.tell(0, "enough")
	j.says(0, "well")
	j.says(1, "well")
}
