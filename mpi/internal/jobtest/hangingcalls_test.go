package jobtest_test

import (
	"sync"

	"github.com/weft-mpi/weft/mpi"
)

// hangingsInCalls have ranks that wait for ever in calls of other kinds, or among many that are right.
var hangingsInCalls = []hanging{
	{"four in a ring that all receive before they send", 4, func(c *mpi.Comm) error {
		if err := recvOne(c, (c.Rank()+3)%4, 1); err != nil {
			return err
		}
		return sendOne(c, (c.Rank()+1)%4, 1)
	}, []string{"no rank can ever go on", "rank 1 waits in Recv from 0, tag 1", "none of them can go on"}},
	{"two of seven", 7, func(c *mpi.Comm) error {
		switch c.Rank() {
		case 2:
			return recvOne(c, 5, 1)
		case 5:
			return recvOne(c, 2, 1)
		}
		return mpi.Barrier(c)
	}, []string{"rank 2 waits in Recv from 5, tag 1", "rank 5 waits in Recv from 2, tag 1", "neither can go on",
		"ranks 2,5 have not called Barrier on world", "ranks 0-1,3-4,6: Barrier on world"}},
	{"other roots", 2, func(c *mpi.Comm) error { return mpi.Bcast(c, make([]int64, 1<<16), 1-c.Rank()) },
		[]string{"ranks 0-1: Bcast on world, at hangingcalls_test.go:", "no rank can ever go on"}},
	{"two send synchronously to each other", 2, func(c *mpi.Comm) error {
		return mpi.Ssend(c, []int64{1}, 1-c.Rank(), 3)
	}, []string{"rank 0 waits in Ssend to 1, tag 3", "neither can go on"}},
	{"a synchronous send to itself", 2, func(c *mpi.Comm) error {
		return mpi.Ssend(c, []int64{1}, c.Rank(), 3)
	}, []string{"rank 0 waits in Ssend to 0, tag 3", "it waits for itself and cannot go on"}},
	{"synchronous sends in another order than their receives", 2, func(c *mpi.Comm) error {
		for _, tag := range []int{1, 2} {
			var err error
			if c.Rank() == 0 {
				err = mpi.Ssend(c, []int64{1}, 1, tag)
			} else {
				err = recvOne(c, 0, 3-tag)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, []string{"rank 0 waits in Ssend to 1, tag 1", "rank 1 waits in Recv from 0, tag 2",
		"rank 1: a message from 0 with tag 1 has come; the receive asks for tag 2"}},
	{"two probe for each other's messages", 2, func(c *mpi.Comm) error {
		_, err := mpi.Probe(c, 1-c.Rank(), 4)
		return err
	}, []string{"rank 0 waits in Probe from 1, tag 4", "rank 1 waits in Probe from 0, tag 4", "neither can go on"}},
	{"a matched probe for another tag", 2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			if err := sendOne(c, 0, 6); err != nil {
				return err
			}
		}
		_, _, err := mpi.Mprobe(c, 1-c.Rank(), 7)
		return err
	}, []string{"rank 0 waits in Mprobe from 1, tag 7",
		"rank 0: a message from 1 with tag 6 has come; the receive asks for tag 7"}},
	{"a lock of a window that is never left", 2, func(c *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](c, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err = w.Lock(1, mpi.Exclusive); err == nil {
				err = mpi.Barrier(c)
			}
		} else if err = mpi.Barrier(c); err == nil {
			err = w.Lock(1, mpi.Shared)
		}
		if err != nil {
			return err
		}
		return recvOne(c, 1-c.Rank(), 1)
	}, []string{"rank 1 waits in Lock of rank 1's part of window world.", ", which rank 0 has locked: rank 0 waits in Recv from 1, tag 1",
		"neither can go on"}},
	{"two locks of windows in different orders", 2, func(c *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](c, 1)
		if err != nil {
			return err
		}
		if err := w.Lock(c.Rank(), mpi.Exclusive); err != nil {
			return err
		}
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		return w.Lock(1-c.Rank(), mpi.Exclusive)
	}, []string{"rank 0 waits in Lock of rank 1's part of window", "rank 1 waits in Lock of rank 0's part of window",
		"neither can go on"}},
	{"a fence that one has not called", 3, func(c *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](c, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 2 {
			return recvOne(c, 0, 1)
		}
		return w.Fence()
	}, []string{"ranks 0-1: Fence for Barrier on world.", "rank 2 waits in Recv from 0, tag 1"}},
	{"an epoch of a window that nobody opens", 2, func(c *mpi.Comm) error {
		w, err := mpi.WinAllocate[int64](c, 1)
		if err != nil {
			return err
		}
		return w.Start(w.Comm().Group())
	}, []string{"ranks 0-1: Start for the Post of rank 0, on world.", "no rank can ever go on"}},
	{"a persistent send that is never started", 2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			if _, err := mpi.SendInit(c, []int64{1}, 0, 5); err != nil {
				return err
			}
			return recvOne(c, 0, 6)
		}
		p, err := mpi.RecvInit(c, make([]int64, 1), 1, 5)
		if err != nil {
			return err
		}
		r, err := p.Start()
		if err != nil {
			return err
		}
		_, err = r.Wait()
		return err
	}, []string{"rank 0 waits in Wait from 1, tag 5", "rank 1 waits in Recv from 0, tag 6", "neither can go on"}},
	{"a loop of one round more", 3, func(c *mpi.Comm) error {
		rounds := 3
		if c.Rank() == 1 {
			rounds = 4
		}
		for range rounds {
			if err := mpi.Allreduce(c, []int64{1}, []int64{0}, mpi.Sum[int64]()); err != nil {
				return err
			}
		}
		return nil
	}, []string{"ranks 0,2 have not called Allreduce on world", "rank 0 waits in Finalize"}},
	{"a collective that does not block", 3, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return recvOne(c, 1, 1)
		}
		r, err := mpi.Iallreduce(c, []int64{1}, []int64{0}, mpi.Sum[int64]())
		if err != nil {
			return err
		}
		_, err = r.Wait()
		return err
	}, []string{"ranks 1-2: Wait for Allreduce on world", "rank 0 has not called Allreduce on world"}},
	{"a communicator that one does not help to make", 3, func(c *mpi.Comm) error {
		if c.Rank() == 2 {
			return recvOne(c, 1, 1)
		}
		_, err := c.Split(0, c.Rank())
		return err
	}, []string{"rank 1 waits in Split on world (for rank 2), at ", "rank 2 waits in Recv from 1, tag 1",
		"neither can go on"}},
	{"a master and workers who wait for one another", 5, func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			return recvOne(c, mpi.AnySource, 2)
		}
		return recvOne(c, 0, 1)
	}, []string{"rank 0: Recv from any source, tag 2", "ranks 1-4: Recv from 0, tag 1", "neither can go on"}},
	{aMutex, 2, func(c *mpi.Comm) error {
		var mu sync.Mutex
		mu.Lock()
		var all sync.WaitGroup
		all.Go(func() {
			mu.Lock() // its message would release the other rank
			defer mu.Unlock()
			sendOne(c, 1-c.Rank(), 1)
		})
		if err := recvOne(c, 1-c.Rank(), 1); err != nil {
			return err
		}
		mu.Unlock()
		all.Wait()
		return nil
	}, []string{"rank 0 waits in Recv from 1, tag 1", "neither can go on"}},
	{"a request for a rank that has ended", 3, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			return nil
		}
		r, err := mpi.Irecv(c, make([]int64, 1), 1, 9)
		if err != nil {
			return err
		}
		_, err = r.Wait()
		return err
	}, []string{"ranks 0,2: Wait from 1, tag 9", "rank 1 is in Finalize and sends no more"}},
	{"one of many leaves out a collective", 8, func(c *mpi.Comm) error {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
		if c.Rank() == 6 {
			return recvOne(c, 7, 1)
		}
		return mpi.Alltoall(c, make([]int64, 8), make([]int64, 8))
	}, []string{"rank 6: Recv from 7, tag 1", "rank 6 has not called Alltoall on world"}},
}
