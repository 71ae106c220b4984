package mpi_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/mpi"
)

func ExampleSend() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		const tag = 7
		if world.Rank() == 0 {
			return mpi.Send(world, []float64{1.5, 2.5}, 1, tag)
		}
		buf := make([]float64, 8) // may be longer than the message; the status says how long that was
		status, err := mpi.Recv(world, buf, 0, tag)
		if err != nil {
			return err
		}
		fmt.Println(buf[:status.Count], "from rank", status.Source)
		return nil
	})
	// Output: [1.5 2.5] from rank 0
}

// Rank 0 takes messages as they come; the status says who sent each.
func ExampleRecv() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() > 0 {
			return mpi.Send(world, []int{100 * world.Rank()}, 0, world.Rank())
		}
		for range world.Size() - 1 {
			buf := make([]int, 1)
			status, err := mpi.Recv(world, buf, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			fmt.Printf("%d from rank %d, tag %d\n", buf[0], status.Source, status.Tag)
		}
		return nil
	})
	// Unordered output:
	// 100 from rank 1, tag 1
	// 200 from rank 2, tag 2
}

// A rank that begins its sends and receives before it waits for them can compute in the meantime.
func ExampleIsend() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		me, size := world.Rank(), world.Size()
		left, right := (me+size-1)%size, (me+1)%size
		out, in := []int{me}, make([]int, 1)
		receive, err := mpi.Irecv(world, in, left, 0)
		if err != nil {
			return err
		}
		send, err := mpi.Isend(world, out, right, 0)
		if err != nil {
			return err
		}
		// Compute here. out must not be changed, and in not be read, until the requests are complete.
		if err := mpi.Waitall([]mpi.Request{receive, send}); err != nil {
			return err
		}
		fmt.Println("rank", me, "has", in[0])
		return nil
	})
	// Unordered output:
	// rank 0 has 2
	// rank 1 has 0
	// rank 2 has 1
}

// Wait returns the status of a receive.
func ExampleRequest_Wait() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			return mpi.Send(world, []byte("done"), 0, 3)
		}
		buf := make([]byte, 16)
		request, err := mpi.Irecv(world, buf, mpi.AnySource, 3)
		if err != nil {
			return err
		}
		status, err := request.Wait()
		if err != nil {
			return err
		}
		fmt.Printf("%s from rank %d\n", buf[:status.Count], status.Source)
		return nil
	})
	// Output: done from rank 1
}

// Waitany returns the first request that is complete, and -1 when none is left.
func ExampleWaitany() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() > 0 {
			return mpi.Send(world, []int{world.Rank()}, 0, 0)
		}
		var requests []mpi.Request
		bufs := make([][1]int, world.Size())
		for rank := 1; rank < world.Size(); rank++ {
			r, err := mpi.Irecv(world, bufs[rank][:], rank, 0)
			if err != nil {
				return err
			}
			requests = append(requests, r)
		}
		for {
			i, _, err := mpi.Waitany(requests)
			if err != nil || i < 0 {
				return err
			}
			fmt.Println("rank", i+1, "has sent", bufs[i+1][0])
		}
	})
	// Unordered output:
	// rank 1 has sent 1
	// rank 2 has sent 2
}

// Probe says how long the next message is, so that the buffer can have its length.
func ExampleProbe() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			return mpi.Send(world, []int32{1, 2, 3}, 1, 0)
		}
		status, err := mpi.Probe(world, 0, 0)
		if err != nil {
			return err
		}
		buf := make([]int32, status.Bytes()/4)
		if _, err := mpi.Recv(world, buf, 0, 0); err != nil {
			return err
		}
		fmt.Println(buf)
		return nil
	})
	// Output: [1 2 3]
}

// RecvSlice makes the buffer itself.
func ExampleRecvSlice() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			return mpi.Send(world, []int32{1, 2, 3}, 1, 0)
		}
		buf, _, err := mpi.RecvSlice[int32](world, 0, 0)
		if err != nil {
			return err
		}
		fmt.Println(buf)
		return nil
	})
	// Output: [1 2 3]
}

// Each rank of a line has a cell of its left neighbor. Sendrecv does not deadlock, and the ends of the line have
// ProcNull for a neighbor, with which nothing is exchanged.
func ExampleSendrecv() {
	run(3, func(_ context.Context, world *mpi.Comm) error {
		left, right := world.Rank()-1, world.Rank()+1
		if left < 0 {
			left = mpi.ProcNull
		}
		if right == world.Size() {
			right = mpi.ProcNull
		}
		mine, halo := []int{world.Rank()}, []int{-1}
		if _, err := mpi.Sendrecv(world, mine, right, 0, halo, left, 0); err != nil {
			return err
		}
		fmt.Println("rank", world.Rank(), "has", halo[0])
		return nil
	})
	// Unordered output:
	// rank 0 has -1
	// rank 1 has 0
	// rank 2 has 1
}

// A value may be anything that encoding/gob can encode.
func ExampleSendValue() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		type job struct {
			Name string
			Size []int
		}
		if world.Rank() == 0 {
			return mpi.SendValue(world, job{"mesh", []int{4, 5}}, 1, 0)
		}
		v, _, err := mpi.RecvValue[job](world, 0, 0)
		if err != nil {
			return err
		}
		fmt.Println(v.Name, v.Size)
		return nil
	})
	// Output: mesh [4 5]
}

// A message that is sent again and again is set up once.
func ExampleSendInit() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		buf := make([]int, 1)
		message, err := mpi.RecvInit(world, buf, 0, 0)
		if world.Rank() == 0 {
			message, err = mpi.SendInit(world, buf, 1, 0)
		}
		if err != nil {
			return err
		}
		for step := range 3 {
			if world.Rank() == 0 {
				buf[0] = step * step
			}
			request, err := message.Start()
			if err != nil {
				return err
			}
			if _, err := request.Wait(); err != nil {
				return err
			}
			if world.Rank() == 1 {
				fmt.Println(buf[0])
			}
		}
		return message.Free()
	})
	// Output:
	// 0
	// 1
	// 4
}

// Goroutines mark their parts of a message as they finish them, and the receiver uses each part when it has
// arrived.
func ExamplePsendInit() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		const parts, length = 4, 1000
		buf := make([]float64, parts*length)
		if world.Rank() == 1 {
			r, err := mpi.PrecvInit(world, buf, parts, 0, 0)
			if err != nil {
				return err
			}
			if err := r.Start(); err != nil {
				return err
			}
			if _, err := r.Wait(); err != nil {
				return err
			}
			fmt.Println(buf[0], buf[parts*length-1])
			return r.Free()
		}
		s, err := mpi.PsendInit(world, buf, parts, 1, 0)
		if err != nil {
			return err
		}
		if err := s.Start(); err != nil {
			return err
		}
		errs := make([]error, parts)
		var group sync.WaitGroup
		for part := range parts {
			group.Go(func() {
				for i := part * length; i < (part+1)*length; i++ {
					buf[i] = float64(i)
				}
				errs[part] = s.Pready(part)
			})
		}
		group.Wait()
		if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
			return errs[i]
		}
		if _, err := s.Wait(); err != nil {
			return err
		}
		return s.Free()
	})
	// Output: 0 3999
}
