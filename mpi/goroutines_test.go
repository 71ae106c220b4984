package mpi

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfProgram(t *testing.T) {
	for function, want := range map[string]bool{
		"main.main":                                                    true,
		"main.(*solver).step":                                          true,
		"example.org/solver.Run":                                       true,
		"example.org/solver/mesh.(*Mesh).Exchange":                     true,
		"github.com/weft-mpi/weft/examples/heat.solve":                 true,
		"github.com/weft-mpi/weft/mpi_test.TestX":                      true,
		"github.com/weft-mpi/weft/bench.latency":                       true,
		"github.com/weft-mpi/weft/mpi.Recv[...]":                       false,
		"github.com/weft-mpi/weft/mpi/internal/engine.(*Engine).sleep": false,
		"github.com/weft-mpi/weft/transport/tcp.(*QP).Post":            false,
		"runtime.gopark":                                               false,
		"net/http.Serve":                                               false,
		"os/signal.loop":                                               false,
		"sync.(*Mutex).Lock":                                           false,
	} {
		require.Equal(t, want, ofProgram(function), function)
	}
}

func TestParseGoroutines(t *testing.T) {
	list := parseGoroutines(`goroutine 1 [sync.WaitGroup.Wait, 2 minutes]:
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
`)
	require.Equal(t, []goroutine{
		{id: 1, state: "sync.WaitGroup.Wait", site: "main.go:30", ours: true},
		{id: 7, state: "sleep", site: "tick.go:12", ours: true},
		{id: 8, state: "syscall"},
		{id: 9, state: "IO wait", ours: true},
	}, list)
	require.True(t, list[0].passive())
	require.False(t, list[1].passive())
	require.False(t, list[3].passive())
}

// The running version of Go writes traces as parseGoroutines reads them.
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
		for _, g := range parseGoroutines(string(buf[:runtime.Stack(buf, true)])) {
			locked = locked || g.state == "sync.Mutex.Lock" && g.passive() && !g.ours
			main = main || g.state == "running"
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

func FuzzParseGoroutines(f *testing.F) {
	buf := make([]byte, 1<<16)
	f.Add(string(buf[:runtime.Stack(buf, true)]))
	f.Add("goroutine 1 [running]:\ngithub.com/weft-mpi/weft/mpi\n\tx.go:1\n")
	f.Fuzz(func(t *testing.T, trace string) { parseGoroutines(trace) })
}
