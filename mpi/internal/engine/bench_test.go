package engine

import (
	"fmt"
	"testing"
)

// echo sends back what rank 0 sends to rank 1, up to an empty message, and tells when it is over.
func echo(w []*Engine, n int) <-chan error {
	over := make(chan error, 1)
	go func() {
		buf := make([]byte, n)
		for {
			st, err := w[1].recv(world0, buf, 0, 0, 1)
			if err == nil && st.Bytes > 0 {
				err = w[1].Sends.Send(world0, buf[:st.Bytes], 0, 0)
			}
			if err != nil || st.Bytes == 0 {
				over <- err
				return
			}
		}
	}()
	return over
}

// BenchmarkPingPong is a message to another engine and back, both in this process: half of it is a message's
// way, without the typed calls of package mpi and on the process's own threads.
func BenchmarkPingPong(b *testing.B) {
	for _, n := range []int{8, 1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("tcp/bytes=%d", n), func(b *testing.B) {
			w := world(b, tcpDevices(b, 2))
			over := echo(w, n)
			buf := make([]byte, n)
			round := func() {
				err := w[0].Sends.Send(world0, buf, 1, 0)
				if err == nil {
					_, err = w[0].recv(world0, buf, 1, 0, 1)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for range 50 { // connected, and in the phase that its size asks for
				round()
			}
			b.SetBytes(int64(2 * n))
			b.ReportAllocs()
			for b.Loop() {
				round()
			}
			b.StopTimer()
			if err := w[0].Sends.Send(world0, nil, 1, 0); err != nil {
				b.Fatal(err)
			}
			if err := <-over; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkWindow is 64 messages of 8 bytes, posted and waited for, as bw and mbw_mr have them, and one
// message back.
func BenchmarkWindow(b *testing.B) {
	const window, n = 64, 8
	w := world(b, tcpDevices(b, 2))
	over := make(chan error, 1)
	all := func(e *Engine, begin func(i int) (Request, error)) error {
		var requests [window]Request
		for i := range requests {
			r, err := begin(i)
			if err != nil {
				return err
			}
			requests[i] = r
		}
		for _, r := range requests {
			if _, err := e.Requests.Wait(r); err != nil {
				return err
			}
		}
		return nil
	}
	rounds := make(chan int)
	go func() {
		buf := make([]byte, n)
		for count := range rounds {
			for range count {
				err := all(w[1], func(int) (Request, error) { return w[1].Recvs.Irecv(world0, buf, 0, 0, 1) })
				if err == nil {
					err = w[1].Sends.Send(world0, buf[:1], 0, 0)
				}
				if err != nil {
					over <- err
					return
				}
			}
		}
		over <- nil
	}()
	buf, answer := make([]byte, n), make([]byte, 1)
	round := func() {
		err := all(w[0], func(int) (Request, error) { return w[0].Sends.Isend(world0, buf, 1, 0) })
		if err == nil {
			_, err = w[0].recv(world0, answer, 1, 0, 1)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	const warm = 50
	rounds <- warm
	for range warm {
		round()
	}
	b.ReportAllocs()
	b.ResetTimer()
	rounds <- b.N
	for range b.N {
		round()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*window), "ns/message")
	close(rounds)
	if err := <-over; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSelf is a message to oneself: matching and one copy, with no provider in it.
func BenchmarkSelf(b *testing.B) {
	w := world(b, tcpDevices(b, 1))
	out, in := make([]byte, 8), make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		r, err := w[0].Recvs.Irecv(world0, in, 0, 0, 1)
		if err == nil {
			err = w[0].Sends.Send(world0, out, 0, 0)
		}
		if err == nil {
			_, err = w[0].Requests.Wait(r)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
