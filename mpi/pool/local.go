package pool

import (
	"context"
	"sync"
)

// local does the tasks at rank 0, where there is no other rank.
type local[T, R any] struct {
	ctx     context.Context
	size    int // of the next batch
	queue   chan given[T]
	results chan done[R]
	with    int // batches that are with it
	group   sync.WaitGroup
}

func newLocal[T, R any](ctx context.Context, f func(context.Context, T) (R, error)) *local[T, R] {
	n := cores()
	l := &local[T, R]{ctx: ctx, size: 1, queue: make(chan given[T], maxSlots*n),
		results: make(chan done[R], maxSlots*n)}
	for range n {
		l.group.Go(func() {
			for g := range l.queue {
				d := done[R]{batch: g.batch}
				if ctx.Err() == nil {
					d.results, d.failures, d.micros = do(ctx, f, g.tasks)
				}
				l.results <- d
			}
		})
	}
	return l
}

func (l *local[T, R]) busy() bool { return l != nil && l.with > 0 }

// free reports whether there is room for a batch.
func (l *local[T, R]) free() bool { return l.with < cap(l.queue) }

func (l *local[T, R]) give(g given[T]) {
	l.with++
	l.queue <- g
}

// await returns the results of a batch.
func (l *local[T, R]) await() (d done[R], err error) {
	select {
	case d = <-l.results:
		l.with--
		l.size = nextSize(l.size, d.batch, 0)
		return d, nil
	case <-l.ctx.Done():
		return d, l.ctx.Err()
	}
}

// end returns when no task is under way.
func (l *local[T, R]) end() {
	if l == nil {
		return
	}
	close(l.queue)
	l.group.Wait()
}
