package mpi_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// countedContext counts what waits for its end.
type countedContext struct {
	context.Context
	waiting *atomic.Int64
}

// AfterFunc is what context.AfterFunc calls. It makes no such call itself: with one in the program, no deadlock
// of this package's tests would be proven.
func (c countedContext) AfterFunc(f func()) (stop func() bool) {
	c.waiting.Add(1)
	var over atomic.Bool
	stopped := make(chan struct{})
	go func() {
		select {
		case <-c.Done():
			if over.CompareAndSwap(false, true) {
				f()
			}
		case <-stopped:
		}
	}()
	return func() bool {
		if !over.CompareAndSwap(false, true) {
			return false
		}
		close(stopped)
		c.waiting.Add(-1)
		return true
	}
}

// A context that lasts does not keep handles that the program has dropped; one that an operation under way
// needs still ends that.
func TestWithContext_DroppedHandle(t *testing.T) { ranks(t, 1, droppedHandles) }

var droppedHandles = body("dropped handles", func(ctx context.Context, world *mpi.Comm) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	long := countedContext{ctx, new(atomic.Int64)}
	r, err := mpi.Irecv(world.WithContext(long), make([]int, 1), 0, 1)
	if err != nil {
		return err
	}
	for range 100 {
		if err := mpi.Barrier(world.WithContext(long)); err != nil {
			return err
		}
	}
	for late := time.Now().Add(time.Minute); long.waiting.Load() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			return fmt.Errorf("%d handles are kept", long.waiting.Load())
		}
		runtime.GC()
	}
	cancel()
	if _, err := r.Wait(); err == nil {
		return fmt.Errorf("the receive did not end with its context")
	}
	return nil
})
