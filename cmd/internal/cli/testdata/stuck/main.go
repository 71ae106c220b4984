// stuck hangs, or seems to, or leaves something open at its end, in the way that its argument names.
package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"runtime"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	ways := map[string]func(*mpi.Comm) error{
		"self": self, "sent": sent, "holder": holder, "late": late, "receiving": receiving,
		"outside": outside, "epoch": epoch, "locked": locked,
	}
	log.SetFlags(0)
	err := mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		return ways[os.Args[1]](world)
	})
	if err != nil {
		log.Fatal(err)
	}
}

// self has each rank wait for itself.
func self(c *mpi.Comm) error { return mpi.Ssend(c, []int{1}, c.Rank(), 1) }

// sent has each rank wait for what it sends to itself later.
func sent(c *mpi.Comm) error {
	later(func() { mpi.Send(c, []byte{1}, c.Rank(), 1) })
	_, err := mpi.Recv(c, make([]byte, 1), c.Rank(), 1)
	return err
}

// holder has rank 0 keep a lock that rank 1 waits for.
func holder(c *mpi.Comm) error {
	w, err := mpi.WinAllocate[int](c, 1)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		if err := w.Lock(0, mpi.Exclusive); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(c); err != nil || c.Rank() == 0 {
		return err
	}
	return w.Lock(0, mpi.Exclusive)
}

// late has rank 0 sleep for ever, and the others wait for it.
func late(c *mpi.Comm) error {
	for c.Rank() == 0 {
		time.Sleep(time.Hour)
	}
	return mpi.Barrier(c)
}

// receiving leaves a goroutine in Recv.
func receiving(c *mpi.Comm) error {
	go mpi.Recv(c, make([]byte, 1), 1-c.Rank(), 1)
	for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
		for g := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
			if bytes.Contains(g, []byte("mpi.Recv[")) && bytes.Contains(g, []byte("/engine.")) {
				return mpi.Barrier(c)
			}
		}
	}
}

// outside puts behind the end of a window, and does not look at the error.
func outside(c *mpi.Comm) error { return putAt(c, 5, true) }

// epoch puts without an epoch, and does not look at the error.
func epoch(c *mpi.Comm) error { return putAt(c, 0, false) }

func putAt(c *mpi.Comm, offset int, fenced bool) error {
	w, err := mpi.WinAllocate[int](c, 1)
	if err == nil && fenced {
		err = w.Fence()
	}
	if err != nil {
		return err
	}
	w.Put([]int{1}, 1-c.Rank(), offset)
	return w.Free()
}

// locked does not unlock.
func locked(c *mpi.Comm) error {
	w, err := mpi.WinAllocate[int](c, 1)
	if err != nil {
		return err
	}
	return w.Lock(c.Rank(), mpi.Exclusive)
}
