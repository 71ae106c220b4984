package engine

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp"
)

// pair is two engines over TCP in this process, connected.
func pair(b *testing.B) (*Engine, *Engine) {
	var engines [2]*Engine
	for i := range engines {
		d, err := tcp.New(tcp.Options{Host: "127.0.0.1"})
		require.NoError(b, err)
		e, err := New(Config{
			Device: d, Identity: transport.Identity{Job: "bench", Rank: uint32(i), Size: 2}, ConnectTimeout: time.Minute,
			Lookup: func(rank uint32) (string, error) { return engines[rank].Addr(), nil },
			Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		require.NoError(b, err)
		engines[i] = e
		b.Cleanup(func() { require.NoError(b, e.Destroy(ErrFinalized)) })
	}
	buf := make([]byte, 1)
	done := make(chan error)
	go func() { _, err := engines[1].Recv(0, buf, 0, 0, 1); done <- err }()
	require.NoError(b, engines[0].Send(0, []byte{1}, 1, 0))
	require.NoError(b, <-done)
	return engines[0], engines[1]
}

// BenchmarkIdlePass is what a rank that waits spends to find that nothing has come: mostly a system call.
func BenchmarkIdlePass(b *testing.B) {
	e, _ := pair(b)
	b.ReportAllocs()
	for b.Loop() {
		e.mu.Lock()
		e.pass()
		e.mu.Unlock()
	}
}

// BenchmarkMessage is a message of 8 bytes from one engine to the other, driven by one goroutine: the whole path, two system calls.
func BenchmarkMessage(b *testing.B) {
	from, to := pair(b)
	out, in := make([]byte, 8), make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		if err := from.Send(0, out, 1, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := to.Recv(0, in, 0, 0, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSelfMessage is the same without a wire: matching, requests and locks.
func BenchmarkSelfMessage(b *testing.B) {
	e, _ := pair(b)
	out, in := make([]byte, 8), make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Send(0, out, 0, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := e.Recv(0, in, 0, 0, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWindow is 32 messages of 8 bytes begun one after the other and then waited for, gathered into few system calls; the time is of
// one message.
func BenchmarkWindow(b *testing.B) {
	const window = 32
	from, to := pair(b)
	out, in := make([]byte, 8), make([]byte, 8)
	var requests [window]Request
	b.ReportAllocs()
	for b.Loop() {
		for i := range requests {
			r, err := from.Isend(0, out, 1, 0)
			if err != nil {
				b.Fatal(err)
			}
			requests[i] = r
		}
		for _, r := range requests {
			if _, err := from.Wait(r); err != nil {
				b.Fatal(err)
			}
		}
		from.mu.Lock()
		from.pass()
		from.mu.Unlock()
		for range window {
			if _, err := to.Recv(0, in, 0, 0, 1); err != nil {
				b.Fatal(err)
			}
		}
		to.mu.Lock()
		to.pass()
		to.mu.Unlock()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/window, "ns/message")
}
