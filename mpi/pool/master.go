package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

const (
	maxBatch   = 4096             // tasks
	batchTime  = 2 * 1000         // µs that a batch of short tasks should take
	batchBytes = 256 << 10        // that tasks or results of a batch should have at most
	maxSlots   = 2                // batches for each core of a worker: one under way, and one that follows
	maxTries   = 3                // workers that may be lost with a task
	ahead      = 8                // times as many tasks as are under way may be done and not taken
	everyLine  = 10 * time.Second // of progress, where there is no terminal
)

// A given batch is with a worker, or waits for one.
type given[T any] struct {
	batch
	tasks []T
	tries int // workers that were lost with it
}

// A worker is a rank that does tasks, as rank 0 sees it.
type worker[T any] struct {
	rank  int
	cores int
	size  int // of its next batch
	has   []given[T]
}

// slots is how many batches it should have.
func (w *worker[T]) slots() int {
	if w.size == 1 {
		return w.cores // long tasks would wait here while another worker has time
	}
	return maxSlots * w.cores
}

// done is the results of a batch.
type done[R any] struct {
	batch
	rank     int
	results  []R
	failures []failure
	lost     bool // given up
}

// A master is rank 0 of a Map.
type master[T, R any] struct {
	ctx   context.Context
	comm  *mpi.Comm
	talk  *mpi.Comm // comm, until the loop ends
	f     func(context.Context, T) (R, error)
	s     settings
	yield func(R, error) bool

	next    func() ([]T, bool) // the next want tasks of the sequence, or fewer at its end
	want    int
	stop    func()
	drained bool       // the sequence has no more tasks
	again   []given[T] // of lost workers
	lost    []done[R]  // that are not tried again
	workers []*worker[T]
	local   *local[T, R]
	issued  int // tasks taken from the sequence

	ready     map[int]done[R] // by first task: not taken yet, as earlier ones are not done
	delivered int
	left      bool // the loop has ended early
	bar       bar
}

func newMaster[T, R any](ctx context.Context, comm *mpi.Comm, tasks iter.Seq[T],
	f func(context.Context, T) (R, error), s settings, yield func(R, error) bool) *master[T, R] {
	m := &master[T, R]{ctx: ctx, comm: comm, f: f, s: s, yield: yield, ready: map[int]done[R]{}}
	m.next, m.stop = iter.Pull(m.runs(tasks))
	m.bar = newBar(s.progress, s.total)
	return m
}

// run has all tasks done. It returns when no worker does anything any more.
func (m *master[T, R]) run() (err error) {
	defer m.stop()
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	fine := false
	defer func() { // also when the loop panics
		cancel()
		err = errors.Join(err, m.end(fine))
		m.bar.last(m.delivered)
	}()
	m.talk = m.comm.WithContext(ctx)
	if err := m.greet(); err != nil {
		return m.reason(err)
	}
	for !m.left {
		if err := m.giveOut(ctx); err != nil {
			return m.reason(err)
		}
		if len(m.again) == 0 && len(m.lost) == 0 && m.drained && !m.busy() {
			fine = true
			return nil
		}
		d, is, err := m.await()
		if err != nil {
			return m.reason(err)
		}
		if is {
			m.deliver(d)
			m.bar.show(m.delivered, len(m.workers))
		}
	}
	return nil
}

// reason is why the loop ends: ctx, where it has ended.
func (m *master[T, R]) reason(err error) error { return cmp.Or(m.ctx.Err(), err) }

// greet learns how many cores the workers have.
func (m *master[T, R]) greet() error {
	for rank := 1; rank < m.comm.Size(); rank++ {
		hello := make([]int64, 1)
		if _, err := mpi.Recv(m.talk, hello, rank, tagHello); errors.Is(err, mpi.ErrProcFailed) {
			if len(m.comm.Failed()) == 0 {
				return err
			}
			continue
		} else if err != nil {
			return err
		}
		m.workers = append(m.workers, &worker[T]{rank: rank, cores: max(1, int(hello[0])), size: 1})
	}
	return m.lose(nil)
}

func (m *master[T, R]) busy() bool {
	return m.local.busy() || slices.ContainsFunc(m.workers, func(w *worker[T]) bool { return len(w.has) > 0 })
}

// giveOut gives batches to all workers that have time.
func (m *master[T, R]) giveOut(ctx context.Context) error {
	for i, w := range slices.Clone(m.workers) {
		for len(w.has) < w.slots() {
			g, is := m.takeFor(w, i == 0)
			if !is {
				break
			}
			parts, err := encode(g.batch, g.tasks, nil)
			if err != nil {
				return err
			}
			if bytes := len(parts[1]); bytes > batchBytes {
				w.size = max(1, w.size*batchBytes/bytes)
			}
			w.has = append(w.has, g)
			err = mpi.SendVec(m.talk, parts, w.rank, tagTasks)
			if errors.Is(err, mpi.ErrProcFailed) {
				if err := m.lose(err); err != nil {
					return err
				}
				break
			}
			if err != nil {
				return err
			}
		}
	}
	if len(m.workers) > 0 {
		return nil
	}
	if m.local == nil {
		m.local = newLocal(ctx, m.f)
	}
	for m.local.free() {
		g, is := m.takeAgain(func(given[T]) bool { return true })
		if !is {
			g, is = m.take(m.local.size)
		}
		if !is {
			return nil
		}
		m.local.give(g)
	}
	return nil
}

// suspect reports whether a task may have ended the workers that had it. It is given to a worker that has no
// other task, as those that it had would be suspected too.
func suspect[T any](g given[T]) bool { return g.tries >= maxTries-1 }

// takeFor takes tasks for a worker. The first worker does those that are suspected, and no others meanwhile.
func (m *master[T, R]) takeFor(w *worker[T], first bool) (g given[T], is bool) {
	if first && (slices.ContainsFunc(m.again, suspect) || slices.ContainsFunc(w.has, suspect)) {
		if len(w.has) > 0 {
			return g, false
		}
		return m.takeAgain(suspect)
	}
	if g, is = m.takeAgain(func(g given[T]) bool { return !suspect(g) }); is {
		return g, true
	}
	return m.take(w.size)
}

// takeAgain takes a task that a lost worker had.
func (m *master[T, R]) takeAgain(which func(given[T]) bool) (g given[T], is bool) {
	i := slices.IndexFunc(m.again, which)
	if i < 0 {
		return g, false
	}
	g = m.again[i]
	m.again = slices.Delete(m.again, i, i+1)
	return g, true
}

// take takes up to n tasks that follow one another, unless too many results have not been taken.
func (m *master[T, R]) take(n int) (g given[T], is bool) {
	under := n
	for _, w := range m.workers {
		under += w.size * w.slots()
	}
	if m.issued-m.delivered > ahead*under {
		return g, false
	}
	g.first, m.want = m.issued, n
	g.tasks, is = m.next()
	m.drained = !is
	g.count = len(g.tasks)
	m.issued += g.count
	return g, is
}

// runs cuts the sequence into runs of tasks: one switch to the sequence's coroutine costs more than a short
// task.
func (m *master[T, R]) runs(tasks iter.Seq[T]) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		var run []T
		for task := range tasks {
			if run == nil {
				run = make([]T, 0, m.want)
			}
			if run = append(run, task); len(run) == m.want {
				if !yield(run) {
					return
				}
				run = nil
			}
		}
		if len(run) > 0 {
			yield(run)
		}
	}
}

// await waits for the results of a batch. It returns false if a worker was lost instead.
func (m *master[T, R]) await() (d done[R], is bool, err error) {
	if last := len(m.lost) - 1; last >= 0 {
		d, m.lost = m.lost[last], m.lost[:last]
		return d, true, nil
	}
	if len(m.workers) == 0 {
		if !m.local.busy() {
			return d, false, nil // tasks of lost workers are given out first
		}
		d, err = m.local.await()
		return d, err == nil, err
	}
	b, st, err := receive(m.talk, mpi.AnySource)
	if errors.Is(err, mpi.ErrProcFailed) {
		return d, false, m.lose(err)
	}
	if err != nil {
		return d, false, err
	}
	i := slices.IndexFunc(m.workers, func(w *worker[T]) bool { return w.rank == st.Source })
	if i < 0 {
		return d, false, nil // sent before it was lost
	}
	w := m.workers[i]
	if st.Tag != tagResults {
		return d, false, fmt.Errorf("rank %d: %w", st.Source, errMessage)
	}
	d = done[R]{rank: w.rank}
	if d.batch, d.results, d.failures, err = decode[R](b); err != nil {
		return d, false, fmt.Errorf("rank %d: %w", st.Source, err)
	}
	at := slices.IndexFunc(w.has, func(g given[T]) bool { return g.first == d.first })
	if at < 0 || w.has[at].count != d.count {
		return d, false, fmt.Errorf("rank %d: %w", st.Source, errMessage)
	}
	w.has = slices.Delete(w.has, at, at+1)
	w.size = nextSize(w.size, d.batch, len(b))
	return d, true, nil
}

// nextSize returns how many tasks the next batch should have.
func nextSize(size int, b batch, bytes int) int {
	each := max(b.micros, 1) // of b.count tasks
	want := min(batchTime*int64(b.count)/each, 4*int64(size), maxBatch)
	if bytes > batchBytes {
		want = min(want, int64(b.count)*batchBytes/int64(bytes))
	}
	return max(1, int(want))
}

// deliver gives the loop the results that come next.
func (m *master[T, R]) deliver(d done[R]) {
	if m.s.unordered {
		m.give(d)
		return
	}
	m.ready[d.first] = d
	for !m.left {
		d, is := m.ready[m.delivered]
		if !is {
			return
		}
		delete(m.ready, m.delivered)
		m.give(d)
	}
}

func (m *master[T, R]) give(d done[R]) {
	for i, r := range d.results {
		var err error
		switch {
		case d.lost:
			err = fmt.Errorf("pool: task %d: %w", d.first+i, ErrLost)
		case len(d.failures) > 0 && d.failures[0].At == i:
			err = &TaskError{Task: d.first + i, Rank: d.rank, Text: d.failures[0].Text}
			d.failures = d.failures[1:]
		}
		m.delivered++
		if !m.yield(r, err) {
			m.left = true
			return
		}
	}
}

// end tells all workers that there are no more tasks, and waits until they do nothing any more.
func (m *master[T, R]) end(fine bool) error {
	m.local.end()
	tag := tagCancel
	if fine {
		tag = tagEnd
	}
	waiting := map[int]bool{}
	for rank := 1; rank < m.comm.Size(); rank++ {
		err := mpi.Send[byte](m.comm, nil, rank, tag)
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		waiting[rank] = err == nil
	}
	for {
		for _, rank := range m.comm.Failed() {
			waiting[rank] = false
		}
		if !slices.Contains(slices.Collect(maps.Values(waiting)), true) {
			return nil
		}
		_, st, err := receive(m.comm, mpi.AnySource)
		switch {
		case errors.Is(err, mpi.ErrProcFailed):
			err = m.lose(err)
		case err == nil && st.Tag == tagBye:
			waiting[st.Source] = false
		}
		if err != nil {
			return err
		}
	}
}

// lose has the tasks of workers that have been lost be done by others. The error is what says that there are
// such workers; where there are none, it is returned.
func (m *master[T, R]) lose(err error) error {
	failed := m.comm.Failed()
	if err != nil && len(failed) == 0 {
		return err
	}
	m.workers = slices.DeleteFunc(m.workers, func(w *worker[T]) bool {
		if !slices.Contains(failed, w.rank) {
			return false
		}
		for _, g := range w.has {
			for i, task := range g.tasks { // one by one, as one of them may have ended the worker
				one := batch{first: g.first + i, count: 1}
				if g.tries+1 < maxTries {
					m.again = append(m.again, given[T]{one, []T{task}, g.tries + 1})
				} else {
					m.lost = append(m.lost, done[R]{batch: one, results: make([]R, 1), lost: true})
				}
			}
		}
		return true
	})
	return m.comm.AckFailed()
}
