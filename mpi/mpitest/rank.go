package mpitest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// rank is one rank of a job.
type rank struct {
	job       *job
	number    int
	conf      []mpi.Config
	place     *inprocess.Place
	goroutine atomic.Uint64 // the body's goroutine
	exited    atomic.Int32  // the status of Abort, plus one; 0 for none
	returned  atomic.Bool   // the body has ended
	ended     atomic.Bool   // the rank has ended completely
	cost      cost          // of the body, if it is measured
	calls     atomic.Int64  // calls begun
	killAt    int64         // the call at which it is killed; 0 for none
	killed    atomic.Bool

	// guarded by the job's lock
	failed bool
	lines  []string // reasons why it fails the test
}

// live runs the rank from Init to its end.
func (r *rank) live(ctx context.Context) {
	err := mpi.Run(inprocess.NewContext(ctx, r.place), r.play, r.conf...)
	switch {
	case err == nil, err == errKilled:
	case errors.Is(err, inprocess.ErrChecked):
		r.checked(err)
	default:
		r.job.fail(r, err)
	}
	if made := r.place.Rank(); made != nil {
		if err := made.Discard(err); err != nil && !r.killed.Load() {
			r.job.fail(r, err)
		}
	}
	r.ended.Store(true)
	r.job.ended.Add(1)
}

// rankKey is the key of a rank in its context.
type rankKey struct{}

// play runs the body in a separate goroutine, so that its end is noticed in any case.
func (r *rank) play(ctx context.Context, world *mpi.Comm) error {
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		r.guard(&err, func() error {
			r.job.awaitBegin(ctx)
			r.takeTurn(0)
			ctx = context.WithValue(ctx, rankKey{}, r)
			ctx = pprof.WithLabels(ctx, pprof.Labels("rank", strconv.Itoa(r.number)))
			pprof.SetGoroutineLabels(ctx)
			began := time.Now()
			err := frame(r.number, func() error { return r.job.body(ctx, world) })
			if r.job.costs != nil {
				r.cost.take(world, began)
			}
			return err
		})
	}()
	<-ended
	r.returned.Store(true)
	if errors.Is(err, inprocess.ErrChecked) {
		time.Sleep(r.job.othersFind())
	}
	if err != nil && err != errKilled {
		r.job.fail(r, err)
	}
	return err
}

// awaitBegin makes all bodies begin together. So nothing synchronizes them before they communicate, and the
// race detector sees the memory that they share.
func (j *job) awaitBegin(ctx context.Context) {
	if int(j.begun.Add(1)) == len(j.ranks) {
		close(j.begin)
	}
	select {
	case <-j.begin:
	case <-ctx.Done():
	}
}

// othersFind returns how much of the ranks' time the others have to find a mistake, too, before the job ends.
func (j *job) othersFind() time.Duration {
	if j.real {
		return 50 * time.Millisecond
	}
	return time.Second
}

// guard calls the body, and sets err to its failure.
func (r *rank) guard(err *error, body func() error) {
	r.goroutine.Store(program.GoroutineID())
	returned := false
	defer func() {
		switch p := recover(); {
		case p != nil:
			*err = &panicked{p, stackOf(debug.Stack())}
		case returned:
		case r.exited.Load() > 0:
			*err = r.abort(int(r.exited.Load() - 1))
		case r.killed.Load():
			*err = errKilled
		case r.job.t.Skipped():
			*err = errSkipped
		default:
			*err = errLeft
		}
	}()
	*err = body()
	returned = true
}

var (
	errLeft = errors.New("the body has not returned: FailNow, Fatal or runtime.Goexit has ended its " +
		"goroutine")
	errSkipped = errors.New("the test is skipped")
)

// panicked is the error of a body that has panicked.
type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// stackOf returns the part of a stack between the panic and this package.
func stackOf(stack []byte) string {
	_, kept, _ := strings.Cut(program.PanicStack(stack), "\n") // without the goroutine's number
	kept, _, _ = strings.Cut(kept, program.Module+"mpi/mpitest.(*rank).play")
	return strings.TrimRight(kept, "\n")
}

// exit ends the goroutine that has called Abort.
func (r *rank) exit(code int) {
	r.exited.CompareAndSwap(0, int32(code)+1)
	runtime.Goexit()
}

// aborts handles the end of the job by this rank: by Abort, or because its body has returned an error.
func (r *rank) aborts(code int) {
	if !r.returned.Load() {
		r.exited.CompareAndSwap(0, int32(code)+1)
		r.job.fail(r, r.abort(code))
	}
}

func (r *rank) abort(code int) error {
	return fmt.Errorf("%w: Abort(%d) has been called", mpi.ErrAborted, code)
}

// checked records that checking mode has found mistakes, which the rank has written.
func (r *rank) checked(err error) {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(r.lines) == 0 {
		r.lines = append(r.lines, err.Error())
	}
}

// isConsequence reports whether an error is only a consequence of the job's end with a cause: the error wraps
// the cause, or says that a peer is gone, or that the context of the body has ended.
func isConsequence(err, cause error) bool {
	return errors.Is(err, cause) || errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, context.Canceled)
}
