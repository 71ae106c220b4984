// Package pool has the ranks of a communicator work on a sequence of tasks that rank 0 has, each where there
// is time for it. Tasks may take very different times, and a rank may be lost.
//
//	for result, err := range pool.Map(ctx, world, tasks, work) {
//		… // at rank 0, in the order of the tasks
//	}
//
// All ranks call Map and range over what it returns. At rank 0 the loop gets the results. The other ranks are
// the workers: they call the function while the loop runs, and its body never, unless the pool fails. If
// there are no others, rank 0 works itself. A worker has as many tasks under way at once as it has cores
// (GOMAXPROCS).
//
// Rank 0 sends short tasks in batches of about two milliseconds of work, and long ones one by one. The
// results of a batch come together, so a task must not wait for what the loop does with the result of
// another. Rank 0 takes a task from the sequence when there is a worker for it and the loop has taken most of
// the results that are there: the sequence may be endless, and a slow loop slows the workers down.
//
// # Lost ranks
//
// In a job that survives failures (weft run --survive), the tasks of a worker that is lost are given to
// others, and each result still comes once. A task that was with three lost workers is not tried again: its
// result is ErrLost. If rank 0 is lost, the loops of all workers get an error and end.
package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/together"
)

// ErrLost says that a task was with three workers that were lost. Maybe the task ends their processes.
var ErrLost = errors.New("each rank that had the task was lost")

// A TaskError is a task's error, or panic, at a worker.
type TaskError struct {
	Task int // index in the sequence of tasks
	Rank int // of the worker
	Text string
}

func (e *TaskError) Error() string {
	return fmt.Sprintf("pool: task %d at rank %d: %s", e.Task, e.Rank, e.Text)
}

// An Option changes how Map works. All ranks pass the same ones.
type Option func(*settings)

type settings struct {
	unordered bool
	progress  io.Writer
	total     int
}

// Unordered has the results come as they are ready, not in the order of the tasks.
func Unordered() Option { return func(s *settings) { s.unordered = true } }

// Progress has rank 0 report on w, such as os.Stderr, how many tasks are done: in one line that it writes
// again and again if w is a terminal, and else every ten seconds. total is the number of tasks, or 0 if it is
// not known.
func Progress(w io.Writer, total int) Option {
	return func(s *settings) { s.progress, s.total = w, total }
}

// Map calls f for each task, at ranks that have time for it, and returns the results in the order of the
// tasks. It is collective: all ranks of c call it and range over the result once. Only rank 0 uses tasks. The
// types T and R are of fixed size without pointers, or such that encoding/gob can carry them.
//
// The error of a task, or its panic, is a TaskError, and does not keep the others from going on. When the
// loop ends early or ctx ends at rank 0, the context of the calls of f ends, and the loop ends when they have
// returned; results of tasks that were not done then do not come. If ctx has ended, the last error is ctx's.
// Each rank passes its own ctx, which is the parent of the context that f gets there.
func Map[T, R any](ctx context.Context, c *mpi.Comm, tasks iter.Seq[T], f func(context.Context, T) (R, error),
	options ...Option) iter.Seq2[R, error] {
	var s settings
	for _, o := range options {
		o(&s)
	}
	return func(yield func(R, error) bool) {
		comm, err := together.Dup(c, "a pool")
		if err == nil {
			if c.Rank() == 0 {
				m := newMaster(ctx, comm, tasks, f, s, yield)
				err = m.run()
				if m.left {
					err = nil // nobody asks for it
				}
			} else {
				err = work(ctx, comm, f)
			}
			err = errors.Join(err, comm.Free())
		}
		if err != nil {
			var none R
			yield(none, fmt.Errorf("pool: %w", err))
		}
	}
}
