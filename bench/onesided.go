package bench

import (
	"slices"
	"unsafe"

	"github.com/weft-mpi/weft/mpi"
)

// Synchronizations that end a one-sided operation, or a window of them.
const (
	syncFlush = "flush" // within one LockAll
	syncLock  = "lock"  // Lock and Unlock, shared
	syncFence = "fence"
)

// Syncs are the values of Options.Sync.
var Syncs = []string{syncFlush, syncLock, syncFence}

// Tables of one-sided operations.
var (
	accumulation = &tableSpec{
		columns:  pingPong.columns,
		datatype: "MPI_LONG", element: wordSize, min: wordSize, max: 4 << 20, axes: latencyAxes, tails: true,
		counts: pingPong.counts,
	}
	oneWord = &tableSpec{
		columns:  pingPong.columns,
		datatype: "MPI_LONG", element: wordSize, min: wordSize, max: wordSize, tails: true,
		counts: pingPong.counts,
	}
)

const wordSize = 8

// remote is a window with room for a message at each rank, and rank 0's operation on rank 1's part.
type remote struct {
	s     *session
	win   epochs
	local []byte // this rank's part
	n     int
	ops   int // operations of an iteration
	// one operation on rank 1's part, whose result is checked at rank 1, or at rank 0 if it reads
	call  func() error
	reads bool
}

// epochs has the synchronization methods of a window of any type.
type epochs interface {
	LockAll() error
	UnlockAll() error
	Lock(rank int, mode mpi.LockMode) error
	Unlock(rank int) error
	Fence() error
	Flush(rank int) error
	Free() error
}

// latency measures an operation and the synchronization that ends it.
func (r *remote) latency() (measurement, error) {
	took, err := r.run()
	if err != nil {
		return measurement{}, err
	}
	timed, _ := r.s.iterations(r.n)
	return measurement{value: took * 1e6 / float64(timed),
		tails: r.s.tails(func(seconds float64) float64 { return seconds * 1e6 })}, nil
}

// bandwidth measures windows of operations.
func (r *remote) bandwidth() (measurement, error) {
	r.ops = r.s.Window
	took, err := r.run()
	return measurement{value: r.s.megabytes(r.n) / took, tails: r.s.tails(r.s.bandwidthOf(r.n, 1))}, err
}

// run returns the seconds of the timed iterations at rank 0. Unless it takes part, rank 1 waits in a barrier,
// and so makes progress.
func (r *remote) run() (took float64, err error) {
	s := r.s
	timed, warmup := s.iterations(r.n)
	watch := s.stopwatch()
	if s.Sync != syncLock && s.Sync != syncFence {
		if err := r.win.LockAll(); err != nil {
			return 0, err
		}
	}
	for i := range timed + warmup {
		if i == warmup {
			if err := mpi.Barrier(s.world); err != nil {
				return 0, err
			}
			watch.begin()
		}
		if s.refills() {
			if err := watch.pause(func() error { return r.refill(i) }); err != nil {
				return 0, err
			}
		}
		if err := r.iteration(); err != nil {
			return 0, err
		}
		watch.split()
		if s.Validate {
			if err := watch.pause(func() error { return r.compare(i) }); err != nil {
				return 0, err
			}
		}
	}
	took = watch.elapsed()
	if err := mpi.Barrier(s.world); err != nil {
		return 0, err
	}
	return took, r.end()
}

// iteration is the timed part.
func (r *remote) iteration() error {
	if r.s.world.Rank() != 0 {
		if r.s.Sync == syncFence {
			return r.win.Fence()
		}
		return nil
	}
	if r.s.Sync == syncLock {
		if err := r.win.Lock(1, mpi.Shared); err != nil {
			return err
		}
	}
	for range r.ops {
		if err := r.call(); err != nil {
			return err
		}
	}
	switch r.s.Sync {
	case syncLock:
		return r.win.Unlock(1)
	case syncFence:
		return r.win.Fence()
	}
	return r.win.Flush(1)
}

// refill rewrites the source.
func (r *remote) refill(sequence int) error {
	s := r.s
	s.pattern(s.send[:r.n], s.world.Rank(), sequence)
	if s.world.Rank() == 1 {
		if r.reads {
			copy(r.local, s.send[:r.n])
		} else {
			clear(r.local)
		}
	}
	return mpi.Barrier(s.world)
}

// compare checks the received bytes at the receiving rank.
func (r *remote) compare(sequence int) error {
	if err := mpi.Barrier(r.s.world); err != nil {
		return err
	}
	switch me := r.s.world.Rank(); {
	case me == 0 && r.reads:
		r.s.compareMessage(r.s.recv[:r.n], 1, sequence)
	case me == 1 && !r.reads:
		r.s.compareMessage(r.local, 0, sequence)
	}
	return nil
}

// end closes the last epoch and frees the window.
func (r *remote) end() error {
	if s := r.s.Sync; s != syncLock && s != syncFence {
		if err := r.win.UnlockAll(); err != nil {
			return err
		}
	}
	return r.win.Free()
}

func putting(s *session, n int) (*remote, error) {
	win, err := mpi.WinAllocate[byte](s.world, n)
	out := s.send[:n]
	return begun(s, win, err, &remote{n: n, call: func() error { return win.Put(out, 1, 0) }})
}

func getting(s *session, n int) (*remote, error) {
	win, err := mpi.WinAllocate[byte](s.world, n)
	in := s.recv[:n]
	return begun(s, win, err, &remote{n: n, reads: true, call: func() error { return win.Get(in, 1, 0) }})
}

func accumulating(s *session, n int) (*remote, error) {
	win, err := mpi.WinAllocate[int64](s.world, n/wordSize)
	out := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(s.send))), n/wordSize)
	sum := mpi.Sum[int64]()
	return begun(s, win, err, &remote{n: n, call: func() error { return win.Accumulate(out, 1, 0, sum) }})
}

// begun sets the window of r, and opens the first epoch if fences close epochs.
func begun[T any](s *session, win *mpi.Win[T], err error, r *remote) (*remote, error) {
	if err != nil {
		return nil, err
	}
	r.s, r.win, r.ops = s, win, 1
	r.local = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(win.Local()))), r.n)
	if s.Sync == syncFence {
		err = win.Fence()
	}
	return r, err
}

// oneSidedOf measures one size of an operation.
func oneSidedOf(of func(*session, int) (*remote, error),
	measure func(*remote) (measurement, error)) func(*session, int) (measurement, error) {
	return func(s *session, n int) (measurement, error) {
		r, err := of(s, n)
		if err != nil {
			return measurement{}, err
		}
		return measure(r)
	}
}

// wordLatency prints the only row of an operation on one element.
func wordLatency(call func(win *mpi.Win[int64]) error) func(s *session) error {
	return func(s *session) error {
		s.heading()
		win, err := mpi.WinAllocate[int64](s.world, 1)
		r, err := begun(s, win, err, &remote{n: wordSize, call: func() error { return call(win) }})
		if err != nil {
			return err
		}
		c, err := r.latency()
		if err != nil {
			return err
		}
		c.size = wordSize
		return s.onlyRow(&c)
	}
}

func fetchAndOp(win *mpi.Win[int64]) error {
	_, err := win.FetchAndOp(1, 1, 0, mpi.Sum[int64]())
	return err
}

func compareAndSwap(win *mpi.Win[int64]) error {
	_, err := win.CompareAndSwap(0, 1, 1, 0)
	return err
}

// oneSided are the benchmarks of windows.
var oneSided = []*Benchmark{
	{Name: "put_latency", Short: "time of a Put and its synchronization", title: "Put Latency",
		spec: pingPong, measureSize: oneSidedOf(putting, (*remote).latency)},
	{Name: "get_latency", Short: "time of a Get and its synchronization", title: "Get Latency",
		spec: pingPong, measureSize: oneSidedOf(getting, (*remote).latency)},
	{Name: "put_bw", Short: "bandwidth of Puts, with a window of outstanding ones", title: "Put Bandwidth",
		spec: stream, measureSize: oneSidedOf(putting, (*remote).bandwidth)},
	{Name: "get_bw", Short: "bandwidth of Gets, with a window of outstanding ones", title: "Get Bandwidth",
		spec: stream, measureSize: oneSidedOf(getting, (*remote).bandwidth)},
	{Name: "acc_latency", Short: "time of an Accumulate and its synchronization",
		title: "Accumulate Latency", spec: accumulation,
		measureSize: oneSidedOf(accumulating, (*remote).latency)},
	{Name: "fop_latency", Short: "time of a FetchAndOp and its synchronization",
		title: "Fetch_and_op Latency", spec: oneWord, runAll: wordLatency(fetchAndOp)},
	{Name: "cas_latency", Short: "time of a CompareAndSwap and its synchronization",
		title: "Compare_and_swap Latency", spec: oneWord, runAll: wordLatency(compareAndSwap)},
}

func init() {
	for _, b := range oneSided {
		b.Ranks, b.Start, b.OneSided = 2, 2, true
		b.preamble = func(s *session) string { return "# Sync: " + s.Sync }
	}
	All = append(All, oneSided...)
}

// checkSync refuses an unknown synchronization.
func (o *Options) checkSync() error {
	if o.Sync == "" || slices.Contains(Syncs, o.Sync) {
		return nil
	}
	return optionErrorf("no synchronization is called %q; there are flush, lock and fence", o.Sync)
}
