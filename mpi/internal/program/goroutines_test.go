package program

import (
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseGoroutines(t *testing.T) {
	list := ParseGoroutines(`goroutine 1 [sync.WaitGroup.Wait, 2 minutes]:
sync.runtime_SemacquireWaitGroup(0xc000012345?)
	/usr/local/go/src/runtime/sema.go:110 +0x25
sync.(*WaitGroup).Wait(0xc000012345)
	/usr/local/go/src/sync/waitgroup.go:118 +0x48
main.main()
	/home/u/solver/main.go:30 +0x11

goroutine 7 [sleep]:
time.Sleep(0x3b9aca00)
	/usr/local/go/src/runtime/time.go:300 +0xf2
main.tick(...)
	/home/u/solver/tick.go:12
created by main.main in goroutine 1
	/home/u/solver/main.go:20 +0x11

goroutine 8 [syscall]:
os/signal.signal_recv()
	/usr/local/go/src/runtime/sigqueue.go:152 +0x29
os/signal.loop()
	/usr/local/go/src/os/signal/signal_unix.go:23 +0x13
created by os/signal.Notify.func1.1 in goroutine 1
	/usr/local/go/src/os/signal/signal.go:151 +0x1f

goroutine 9 [IO wait]:
internal/poll.runtime_pollWait(0x7f, 0x72)
	/usr/local/go/src/runtime/netpoll.go:351 +0x85
created by example.org/server.Start in goroutine 1
	/home/u/server/server.go:20 +0x11

goroutine 10 [IO wait]:
internal/poll.runtime_pollWait(0x7f, 0x72)
	/usr/local/go/src/runtime/netpoll.go:351 +0x85
created by net/http.(*Server).Serve in goroutine 9
	/usr/local/go/src/net/http/server.go:3454 +0x485

goroutine 11 [chan receive]:
testing.(*T).Run(0xc00000f340, {0x5, 0x8}, 0x18)
	/usr/local/go/src/testing/testing.go:2005 +0x485
main.main()
	/home/u/solver/main.go:40 +0x11

goroutine 12 [chan receive]:
main.recurse(...)
	/home/u/solver/main.go:50 +0x11
...additional frames elided...
created by main.main in goroutine 1
	/home/u/solver/main.go:20 +0x11

goroutine 13 [sleep]:
time.Sleep(0x3b9aca00)
	/usr/local/go/src/runtime/time.go:300 +0xf2
created by github.com/weft-mpi/weft/mpi.Init in goroutine 1
	/home/u/weft/mpi/init.go:20 +0x11

goroutine 14 [chan send (durable), 3 minutes, synctest bubble 25]:
main.rank(...)
	/home/u/solver/main.go:60 +0x11
created by main.main in goroutine 7
	/home/u/solver/main.go:21 +0x11

goroutine 15 [sync.Mutex.Lock, synctest bubble 25]:
github.com/weft-mpi/weft/mpi/internal/engine.(*Engine).Recv(0xc00000f340)
	/home/u/weft/mpi/internal/engine/recv.go:9 +0x11
github.com/weft-mpi/weft/mpi.(*Comm).recv(0xc00000f340)
	/home/u/weft/mpi/p2p.go:70 +0x11
github.com/weft-mpi/weft/mpi.Recv[...](...)
	/home/u/weft/mpi/p2p.go:60 +0x11
main.rank(...)
	/home/u/solver/main.go:60 +0x11
`)
	require.Equal(t, []Goroutine{
		{ID: 1, State: "sync.WaitGroup.Wait", Caller: OfProgram, Site: "main.go:30", Function: "sync.runtime_SemacquireWaitGroup",
			Owner: OfProgram},
		{ID: 7, State: "sleep", Caller: OfProgram, Site: "tick.go:12", Function: "time.Sleep", Owner: OfProgram,
			Parent: 1, Began: "main.go:20"},
		{ID: 8, State: "syscall", Caller: OfLibrary, Function: "os/signal.signal_recv", Owner: OfLibrary, Parent: 1},
		{ID: 9, State: "IO wait", Caller: OfLibrary, Function: "internal/poll.runtime_pollWait", Owner: OfProgram, Parent: 1,
			Began: "server.go:20"},
		{ID: 10, State: "IO wait", Caller: OfLibrary, Function: "internal/poll.runtime_pollWait", Owner: OfLibrary, Parent: 9},
		{ID: 11, State: "chan receive", Caller: OfProgram, Function: "testing.(*T).Run", Owner: OfProgram, Site: "main.go:40"},
		{ID: 12, State: "chan receive", Caller: OfProgram, Function: "main.recurse", Owner: OfProgram, Site: "main.go:50",
			Parent: 1, Began: "main.go:20"},
		{ID: 13, State: "sleep", Caller: OfLibrary, Function: "time.Sleep", Owner: OfItself, Parent: 1},
		{ID: 14, State: "chan send", Caller: OfProgram, Function: "main.rank", Owner: OfProgram, Site: "main.go:60", Parent: 7,
			Began: "main.go:21", Bubble: "25", Durable: true},
		{ID: 15, State: "sync.Mutex.Lock", Caller: OfItself, Owner: OfProgram, Site: "main.go:60", Call: "Recv",
			Function: "github.com/weft-mpi/weft/mpi/internal/engine.(*Engine).Recv", Bubble: "25"},
	}, list)
	for i, may := range []bool{false, true, false, true, true, false, true, false, false, false} {
		require.Equal(t, may, list[i].MayAct(), list[i])
	}
}

// The running version of Go writes traces as ParseGoroutines reads them.
func TestParseGoroutines_OfThisVersionOfGo(t *testing.T) {
	var mu sync.Mutex
	mu.Lock()
	done := make(chan struct{})
	go func() {
		mu.Lock()
		close(done)
	}()
	for {
		buf := make([]byte, 1<<20)
		locked, main := false, false
		for _, g := range ParseGoroutines(string(buf[:runtime.Stack(buf, true)])) {
			locked = locked || g.State == "sync.Mutex.Lock" && !g.MayAct()
			main = main || g.State == "running"
		}
		require.True(t, main)
		if locked {
			break
		}
		runtime.Gosched()
	}
	mu.Unlock()
	<-done
}

func TestRunsTest(t *testing.T) {
	require.True(t, RunsTest(reflect.ValueOf(t).Pointer()))
	t.Run("sub", func(sub *testing.T) {
		require.True(t, RunsTest(reflect.ValueOf(sub).Pointer()))
		require.False(t, RunsTest(reflect.ValueOf(t).Pointer()))
	})
	other := make(chan bool)
	go func() { other <- RunsTest(reflect.ValueOf(t).Pointer()) }()
	require.False(t, <-other)
	require.True(t, runsTest("goroutine 1 [running]:\ntesting.tRunner(0xc000012345?, 0x1)\n", 1),
		"the address is not certain")
}

func FuzzParseGoroutines(f *testing.F) {
	buf := make([]byte, 1<<16)
	f.Add(string(buf[:runtime.Stack(buf, true)]))
	f.Add("goroutine 1 [running]:\ngithub.com/weft-mpi/weft/mpi\n\tx.go:1\n")
	f.Fuzz(func(t *testing.T, trace string) { ParseGoroutines(trace) })
}
