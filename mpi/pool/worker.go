package pool

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// cores is how many tasks a rank has under way at once.
func cores() int { return runtime.GOMAXPROCS(0) }

// work does tasks for rank 0 until it says that there are no more.
func work[T, R any](ctx context.Context, c *mpi.Comm, f func(context.Context, T) (R, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := mpi.Send(c, []int64{int64(cores())}, 0, tagHello); err != nil {
		return err
	}
	queue := make(chan []byte, maxSlots*cores())
	var unwanted atomic.Bool // what is in the queue
	var group sync.WaitGroup
	for range cores() {
		group.Go(func() {
			for message := range queue {
				if !unwanted.Load() {
					answer(ctx, c, f, message)
				}
			}
		})
	}
	end, err := take(c, queue)
	if err != nil || end == tagCancel {
		unwanted.Store(true)
		cancel()
	}
	close(queue)
	group.Wait()
	if err != nil {
		return err
	}
	return mpi.Send[byte](c, nil, 0, tagBye)
}

// take queues batches of tasks until none are left.
func take(c *mpi.Comm, queue chan<- []byte) (end int, err error) {
	for {
		b, st, err := receive(c, 0)
		if err != nil || st.Tag != tagTasks {
			return st.Tag, err
		}
		queue <- b
	}
}

// answer does a batch of tasks, and sends the results. If that fails, rank 0 is gone, or it has lost this
// rank.
func answer[T, R any](ctx context.Context, c *mpi.Comm, f func(context.Context, T) (R, error),
	message []byte) {
	b, tasks, _, err := decode[T](message)
	var results []R
	var failures []failure
	if err == nil {
		results, failures, b.micros = do(ctx, f, tasks)
	}
	var parts [][]byte
	if err == nil {
		parts, err = encode(b, results, failures)
	}
	if err != nil {
		failures = failures[:0]
		for i := range b.count {
			failures = append(failures, failure{i, err.Error()})
		}
		parts = [][]byte{b.header(0), nil, nil}
		parts[2], _ = marshalGob(failures)
	}
	mpi.SendVec(c, parts, 0, tagResults)
}

// do does tasks one after the other.
func do[T, R any](ctx context.Context, f func(context.Context, T) (R, error), tasks []T) (results []R,
	failures []failure, micros int64) {
	begin := time.Now()
	results = make([]R, len(tasks))
	for i, task := range tasks {
		var err error
		if results[i], err = call(ctx, f, task); err != nil {
			failures = append(failures, failure{i, err.Error()})
		}
	}
	return results, failures, time.Since(begin).Microseconds()
}

// call makes a panic of f an error: the worker goes on with other tasks.
func call[T, R any](ctx context.Context, f func(context.Context, T) (R, error), task T) (r R, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f(ctx, task)
}
