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
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// waits are the blocking calls, as rank 0 makes them while rank 1, which it has to do with in each, will
// never answer. Each gets a communicator of its own.
var waits = []struct {
	name string
	call func(c *mpi.Comm) error
}{
	{"Recv", func(c *mpi.Comm) error { return second(mpi.Recv(c, large(), 1, 0)) }},
	{"Recv from any source", func(c *mpi.Comm) error {
		return second(mpi.Recv(c, large(), mpi.AnySource,
			mpi.AnyTag))
	}},
	{"Send", func(c *mpi.Comm) error { return mpi.Send(c, large(), 1, 0) }},
	{"RecvVec", func(c *mpi.Comm) error {
		return second(mpi.RecvVec(c, [][]byte{make([]byte, 10), make([]byte, many)}, 1, 0))
	}},
	{"SendVec", func(c *mpi.Comm) error {
		return mpi.SendVec(c,
			[][]byte{make([]byte, 10), make([]byte, 8*many)}, 1, 0)
	}},
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
	if !errors.As(err, &e) || !errors.Is(err, mpi.ErrProcFailed) || e.Peer != rank {
		return fmt.Errorf("%s: got %v; want ErrProcFailed with peer %d", what, err, rank)
	}
	return nil
}

// survivor makes every blocking call at once, tells when all of them wait, and checks that each ends with the
// failure of rank 1: those that wait, and then those that begin when it is known. Nothing of the fabric is
// left after Finalize.
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
		if err := lostRank(w.name+", begun after the failure", w.call(comms[i]), 1); err != nil {
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

// allAsleep reports whether n goroutines wait in the engine: on a channel of their own, or, one of them, in its
// poller.
func allAsleep(n int) bool {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	return bytes.Count(b, []byte("engine.(*waiting).sleep(")) == n
}

// asleepIn reports whether a goroutine of this process waits in the engine in a call of package mpi.
func asleepIn(call string) bool {
	b := make([]byte, 1<<20)
	for trace := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if strings.Contains(trace, "mpi."+call) && strings.Contains(trace, "engine.(*waiting).sleep(") {
			return true
		}
	}
	return false
}

// nothingLeft wants no socket, no poller, no goroutine and no registered memory of the fabric to be left in
// the process.
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
	if n := sys.Mapped(); n > 0 {
		return fmt.Errorf("%d bytes of memory for peers are left", n)
	}
	return goleak.Find(goleak.IgnoreTopFunction("github.com/weft-mpi/weft/mpi.Run"),
		goleak.IgnoreTopFunction("main.main"))
}

// cutOff has the kernel drop whatever comes for the TCP sockets of this process: with the same at the other
// end, the cable is cut.
func cutOff() (sockets int, err error) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	nothing := []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K}}
	for _, f := range list {
		fd, _ := strconv.Atoi(f.Name())
		if domain, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_DOMAIN); err != nil ||
			domain == syscall.AF_UNIX {
			continue
		}
		program := syscall.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]}
		if _, _, e := syscall.Syscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET,
			syscall.SO_ATTACH_FILTER,
			uintptr(unsafe.Pointer(&program)), unsafe.Sizeof(program), 0); e != 0 {
			return sockets, e
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
	j.t.Logf("the last call had ended %v after the fault", time.Unix(0,
		ended).Sub(struck).Round(10*time.Microsecond))
	j.says(0, "well")
}

// A killed rank is known by the end of its connections: no timeout has a part in it.
func TestKilledRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1h", fabric)
		j.strike(func() { j.signal(1, syscall.SIGKILL) })
	})
}

// A stopped rank's kernel goes on acknowledging. When the rank goes on it learns that it was given up.
func TestStoppedRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1s", fabric)
		j.strike(func() {
			j.signal(1, syscall.SIGSTOP)
			j.stopped(1)
		})
		j.signal(1, syscall.SIGCONT)
		t.Log(j.says(1, "lost: "))
		j.says(1, "well")
	})
}

// With the cable cut both ends find the other gone.
func TestCutOffRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1s", "WEFT_FABRIC=tcp")
	j.strike(func() {
		for rank := range j.ranks {
			j.tell(rank, "cut")
		}
		for rank := range j.ranks {
			n, err := strconv.Atoi(strings.TrimSuffix(j.says(rank, "cut "), " <nil>"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, 2, "the listener, and the connections of the endpoints, are cut off")
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

// A job that is stopped as a whole, as Ctrl-Z does it, for much longer than the timeout, goes on: who was not
// running himself holds nobody's silence against him.
func TestStoppedJobGoesOn(t *testing.T) {
	t.Parallel()
	fabricsInTurn(t, stoppedJobGoesOn)
}

func stoppedJobGoesOn(t *testing.T, fabric string) {
	t.Parallel()
	j := begin(t, 2, exchange, "WEFT_PEER_TIMEOUT=3s", fabric) // much longer than it takes to stop them both
	for i := range 2 {
		j.says(0, "round")
		j.says(1, "round")
		for rank := range j.ranks {
			j.signal((rank+i)%2, syscall.SIGSTOP)
		}
		for rank := range j.ranks {
			j.stopped(rank)
		}
		time.Sleep(4 * time.Second)
		for rank := range j.ranks {
			j.signal(rank, syscall.SIGCONT)
		}
	}
	j.tell(0, "enough")
	j.says(0, "well")
	j.says(1, "well")
}

// computing: rank 1 computes for several timeouts, on one processor and without a call of weft, while rank 0
// waits for it.
var computing = body("computing", func(_ context.Context, world *mpi.Comm) error {
	var sum [1]int
	if world.Rank() == 1 {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		for start := time.Now(); time.Since(start) < 3*time.Second; {
			for i := range 1 << 20 {
				sum[0] += i & 1
			}
		}
		return mpi.Send(world, sum[:], 0, 0)
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	return second(mpi.Recv(world, sum[:], 1, 0))
})

func TestComputingRankIsNotLost(t *testing.T) {
	t.Parallel()
	r := launch(t, 2, computing, "WEFT_PEER_TIMEOUT=1s", "GOMAXPROCS=1")
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
}

// starved: for several timeouts no goroutine of rank 1 but one gets its only processor, so it is silent; then
// it sends. It waits for a word of memory that rank 0 shares with it, since a call would let others run.
var starved = body("starved", func(_ context.Context, world *mpi.Comm) error {
	f, err := os.OpenFile(os.Getenv(flagVariable), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	defer syscall.Munmap(memory)
	word := (*atomic.Uint64)(unsafe.Pointer(&memory[0]))
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if world.Rank() == 1 {
		for word.Load() == 0 {
		}
		return mpi.Send(world, []int{1}, 0, 0)
	}
	time.Sleep(3 * time.Second)
	word.Store(1)
	return second(mpi.Recv(world, make([]int, 1), 1, 0))
})

func TestStarvedRankIsNotLost(t *testing.T) {
	testlength.NotInShort(t)
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		flag := filepath.Join(t.TempDir(), "flag")
		require.NoError(t, os.WriteFile(flag, make([]byte, 8), 0o600))
		ranks(t, 2, starved, fabric, "WEFT_PEER_TIMEOUT=1s", "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1",
			flagVariable+"="+flag)
	})
}

// finalizing: rank 0 has come to the end while rank 1 has not. What rank 1 sent before, rank 0 has taken, and
// never received.
var finalizing = body("finalizing", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 1 {
		r, err := mpi.Isend(world, large(), 0, 0)
		if err != nil {
			return err
		}
		fmt.Println("waiting")
		r.Wait() // it ends when rank 0 drops the message in Finalize
		select {}
	}
	m, _, err := mpi.Mprobe(world, 1, 0)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- mpi.Finalize() }()
	for !allAsleep(1) && len(ended) == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("waiting")
	if err := lostRank("Finalize", <-ended, 1); err != nil {
		return err
	}
	if _, err := mpi.Mrecv(&m, large()); !errors.Is(err, mpi.ErrFinalized) {
		return fmt.Errorf("Mrecv after Finalize: %w", err)
	}
	fmt.Println("ended", time.Now().UnixNano())
	fmt.Println("well")
	os.Exit(0)
	return nil
})

func TestFinalizeEndsWhenARankStops(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, finalizing, "WEFT_PEER_TIMEOUT=300ms")
	j.strike(func() { j.signal(1, syscall.SIGSTOP) })
}

func TestFinalizeEndsWhenARankIsKilled(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, finalizing, "WEFT_PEER_TIMEOUT=1h")
	j.strike(func() { j.signal(1, syscall.SIGKILL) })
}

// matched: rank 0 holds a Message of rank 1, whose bytes are still there, when rank 1 fails.
var matched = body("matched", func(_ context.Context, world *mpi.Comm) error {
	if world.Rank() == 1 {
		r, err := mpi.Isend(world, large(), 0, 0)
		if err != nil {
			return err
		}
		fmt.Println("waiting")
		return second(r.Wait())
	}
	m, _, err := mpi.Mprobe(world, 1, 0)
	if err != nil {
		return err
	}
	fmt.Println("waiting")
	if err := lostRank("Recv", second(mpi.Recv(world, large(), 1, 1)), 1); err != nil {
		return err
	}
	fmt.Println("ended", time.Now().UnixNano())
	if err := lostRank("Mrecv", second(mpi.Mrecv(&m, large())), 1); err != nil {
		return err
	}
	fmt.Println("well")
	os.Exit(0)
	return nil
})

func TestMatchedMessageOfAFailedRank(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, matched, "WEFT_PEER_TIMEOUT=300ms")
	j.strike(func() { j.signal(1, syscall.SIGSTOP) })
}

// unconnected: rank 0 turns to rank 1 for the first time when that has failed.
var unconnected = worldBody("unconnected", func(_ context.Context, world *mpi.Comm) error {
	fmt.Println("waiting")
	in := bufio.NewReader(os.Stdin)
	if line, _ := in.ReadString('\n'); world.Rank() == 1 {
		if line == "cut\n" {
			n, err := cutOff()
			fmt.Println("cut", n, err)
		}
		select {}
	}
	calls := map[string]func() error{
		"Send":    func() error { return mpi.Send(world, large(), 1, 0) },
		"Ssend":   func() error { return mpi.Ssend(world, large()[:1], 1, 0) },
		"Isend":   func() error { return waited(mpi.Isend(world, large()[:1], 1, 0)) },
		"Barrier": func() error { return mpi.Barrier(world) },
	}
	errs := make(chan error)
	for name, call := range calls {
		go func() { errs <- lostRank(name, call(), 1) }()
	}
	for range calls {
		if err := <-errs; err != nil {
			return err
		}
	}
	fmt.Println("ended", time.Now().UnixNano())
	if err := lostRank("Recv", second(mpi.Recv(world, large(), 1, 0)), 1); err != nil {
		return err
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
})

func TestFirstUseOfAFailedRank(t *testing.T) {
	for name, fault := range map[string]func(j *processes){
		"Killed": func(j *processes) {
			j.signal(1, syscall.SIGKILL)
			j.ranks[1].cmd.Process.Wait()
		},
		"Stopped": func(j *processes) {
			j.signal(1, syscall.SIGSTOP)
			j.stopped(1)
		},
		"CutOff": func(j *processes) {
			j.tell(1, "cut")
			require.Equal(j.t, "1 <nil>", j.says(1, "cut "), "the listener is cut off")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{"WEFT_PEER_TIMEOUT=300ms", "WEFT_CONNECT_TIMEOUT=500ms"}
			if name == "CutOff" {
				env = append(env, "WEFT_FABRIC=tcp") // there is no cable inside a host
			}
			j := begin(t, 2, unconnected, env...)
			j.strike(func() { fault(j) })
		})
	}
}

// others: rank 2 dies; ranks 0 and 1 have a communicator of their own, and go on in it.
var others = body("others", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	pair, err := world.Split(me/2, 0)
	if err != nil {
		return err
	}
	twin, err := pair.Dup()
	if err != nil {
		return err
	}
	if me == 2 {
		fmt.Println("waiting")
		select {}
	}
	// Between the two, from any source: neither of the receives is touched.
	got, again := make([]int, 1), make([]int, 1)
	onPair, err := mpi.Irecv(pair, got, mpi.AnySource, 0)
	if err != nil {
		return err
	}
	onTwin, err := mpi.Irecv(twin, again, mpi.AnySource, 0)
	if err != nil {
		return err
	}
	probed := make(chan error, 1)
	go func() { probed <- second(mpi.Probe(pair, mpi.AnySource, 7)) }()
	fmt.Println("waiting")
	if err := lostRank("Recv from any source of the world", second(mpi.Recv(world, got[:0], mpi.AnySource,
		9)), 2); err != nil {
		return err
	}
	fmt.Println("ended", time.Now().UnixNano())
	for tag, c := range map[int]*mpi.Comm{0: pair, 7: pair} {
		if err := mpi.Send(c, []int{me}, 1-me, tag); err != nil {
			return err
		}
	}
	if err := mpi.Send(twin, []int{me}, 1-me, 0); err != nil {
		return err
	}
	if err := firstError(second(onPair.Wait()), second(onTwin.Wait()), <-probed,
		mpi.Barrier(pair)); err != nil {
		return err
	}
	// One rank of the world is left that could answer.
	if err := world.AckFailed(); err != nil {
		return err
	}
	if me == 0 {
		if err := mpi.Send(world, []int{4}, 1, 1); err != nil {
			return err
		}
	} else if err := second(mpi.Recv(world, got, mpi.AnySource, 1)); err != nil {
		return err
	}
	err = firstError(want("on the pair", again[0], 1-me), second(mpi.Sendrecv(pair, got, 1-me, 3, again,
		mpi.AnySource, 3)))
	if err != nil {
		return err
	}
	fmt.Println("well")
	bufio.NewReader(os.Stdin).ReadString('\n') // as long as the other needs it
	os.Exit(0)
	return nil
})

func TestRankOutsideACommunicatorIsNoneOfItsMatter(t *testing.T) {
	t.Parallel()
	j := begin(t, 3, others)
	for _, rank := range []int{2, 0, 1} {
		j.says(rank, "waiting")
	}
	j.signal(2, syscall.SIGKILL)
	j.says(0, "well")
	j.says(1, "well")
}
