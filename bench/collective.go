package bench

import "github.com/weft-mpi/weft/mpi"

// operation is a collective on buffers of one size.
type operation struct {
	fill    func(i int) // fills the send buffer of call i
	call    func() error
	start   func() (mpi.Request, error) // the non-blocking form of call
	compare func(i int)                 // checks the received bytes of call i
}

// measuredCollective is a collective with benchmarks of its blocking and of its non-blocking form.
type measuredCollective struct {
	name, what, title    string
	specs                *tableSpecs
	of                   func(s *session, n int) operation
	recvCount, sendCount countFunc
}

// tableSpecs are the tables of the two forms of a collective.
type tableSpecs struct{ blocking, nonBlocking *tableSpec }

var (
	ofBlocks  = &tableSpecs{collective, collectiveOverlaps}
	ofVectors = &tableSpecs{reduction, reductionOverlaps}
)

var measuredCollectives = []measuredCollective{
	{"allgather", "a gather to all ranks", "Allgather", ofBlocks, allgather, allEverywhere, nil},
	{"allgatherv", "a gather of blocks of any length to all ranks", "Allgatherv", ofBlocks,
		allgatherv, allEverywhere, nil},
	{"allreduce", "a reduction to all ranks", "Allreduce", ofVectors, allreduce, nil, nil},
	{"alltoall", "an exchange between all ranks", "Alltoall", ofBlocks,
		alltoall, allEverywhere, allEverywhere},
	{"alltoallv", "an exchange of blocks of any length between all ranks", "Alltoallv", ofBlocks,
		alltoallv, allEverywhere, allEverywhere},
	{"bcast", "a broadcast", "Broadcast", ofBlocks, broadcast, nil, nil},
	{"gather", "a gather to one rank", "Gather", ofBlocks, gather, allAtRoot, nil},
	{"gatherv", "a gather of blocks of any length to one rank", "Gatherv", ofBlocks,
		gatherv, allAtRoot, nil},
	{"neighbor_allgather", "a gather from the neighbors in a ring", "Neighbor Allgather", ofBlocks,
		onRing(neighborAllgather), twoBlocks, nil},
	{"neighbor_allgatherv", "a gather of blocks of any length from the neighbors", "Neighbor Allgatherv",
		ofBlocks, onRing(neighborAllgatherv), twoBlocks, nil},
	{"neighbor_alltoall", "an exchange with the neighbors in a ring", "Neighbor Alltoall", ofBlocks,
		onRing(neighborAlltoall), twoBlocks, twoBlocks},
	{"neighbor_alltoallv", "an exchange of blocks of any length with the neighbors", "Neighbor Alltoallv",
		ofBlocks, onRing(neighborAlltoallv), twoBlocks, twoBlocks},
	{"reduce", "a reduction to one rank", "Reduce", ofVectors, reduce, nil, nil},
	{"reduce_scatter", "a reduction whose result is scattered over all ranks", "Reduce_scatter", ofVectors,
		reduceScatter, nil, nil},
	{"scan", "a reduction over the ranks up to each", "Scan", ofVectors, scan, nil, nil},
	{"scatter", "a scatter from one rank", "Scatter", ofBlocks, scatter, nil, allAtRoot},
	{"scatterv", "a scatter of blocks of any length from one rank", "Scatterv", ofBlocks,
		scatterv, nil, allAtRoot},
}

// blockingForms returns the benchmarks of the collectives' blocking forms.
func blockingForms() []*Benchmark {
	list := []*Benchmark{
		{Name: "barrier", Short: "time of a barrier", MinRanks: 1, Start: 2,
			title: "Barrier Latency", spec: synchronization, runAll: barrier},
	}
	for _, c := range measuredCollectives {
		list = append(list, &Benchmark{Name: c.name, Short: "time of " + c.what, MinRanks: 2, Start: 2,
			title: c.title + " Latency", spec: c.specs.blocking, measureSize: blocking(c.of),
			recvCount: c.recvCount, sendCount: c.sendCount})
	}
	return list
}

// nonBlockingForms returns the benchmarks of the collectives' non-blocking forms.
func nonBlockingForms() []*Benchmark {
	list := []*Benchmark{
		{Name: "ibarrier", Short: "overlap of a non-blocking barrier with computation", MinRanks: 1, Start: 2,
			title: "Non-blocking Barrier Latency", spec: barrierOverlaps, runAll: barrierOverlap},
	}
	for _, c := range measuredCollectives {
		list = append(list, &Benchmark{Name: "i" + c.name, Short: "overlap with computation of " + c.what,
			MinRanks: 2, Start: 2, title: "Non-blocking " + c.title + " Latency", spec: c.specs.nonBlocking,
			measureSize: nonBlocking(c.of), recvCount: c.recvCount, sendCount: c.sendCount})
	}
	return list
}

// blocking measures the calls of a collective.
func blocking(of func(s *session, n int) operation) func(*session, int) (measurement, error) {
	return func(s *session, n int) (measurement, error) {
		o := of(s, n)
		return s.each(n, o.fill, o.call, o.compare)
	}
}

// nonBlocking measures how much of a collective overlaps with computation: each rank starts it, computes for
// as long as the collective alone takes, and waits.
func nonBlocking(of func(s *session, n int) operation) func(*session, int) (measurement, error) {
	return func(s *session, n int) (measurement, error) { return s.overlaps(n, of(s, n)) }
}

func (s *session) overlaps(n int, o operation) (measurement, error) {
	computing := func(rounds int) func() error {
		return func() error {
			r, err := o.start()
			if err != nil {
				return err
			}
			compute(rounds)
			_, err = r.Wait()
			return err
		}
	}
	baseline, err := s.each(n, o.fill, computing(0), o.compare)
	if err != nil {
		return measurement{}, err
	}
	rounds, took := s.calibrated(baseline.value / 1e6)
	work, err := s.spread(took * 1e6)
	if err != nil {
		return measurement{}, err
	}
	c, err := s.each(n, o.fill, computing(rounds), o.compare)
	if err != nil {
		return measurement{}, err
	}
	c.compute, c.baseline = work.value, baseline.value
	if c.baseline > 0 {
		c.overlap = 100 * min(1, max(0, 1-(c.value-c.compute)/c.baseline))
	}
	return c, nil
}

// each times only the calls, with a barrier between two of them, and returns average, minimum and maximum
// over the ranks' means. It does not time before and after, which are for validation.
func (s *session) each(n int, before func(i int), call func() error, after func(i int)) (measurement, error) {
	timed, warmup := s.iterations(n)
	var sum float64
	watch := s.stopwatch()
	for i := range timed + warmup {
		if i == warmup {
			watch.begin()
		}
		if s.refills() {
			before(i)
			if err := mpi.Barrier(s.world); err != nil {
				return measurement{}, err
			}
		}
		start := s.now()
		if err := call(); err != nil {
			return measurement{}, err
		}
		took := s.now() - start
		if i >= warmup {
			sum += took
			watch.took(took)
		}
		if s.Validate {
			after(i)
		}
		if err := mpi.Barrier(s.world); err != nil {
			return measurement{}, err
		}
	}
	c, err := s.spread(sum * 1e6 / float64(timed))
	if err != nil {
		return measurement{}, err
	}
	if err := s.merge(); err != nil {
		return measurement{}, err
	}
	c.tails = s.tails(func(seconds float64) float64 { return seconds * 1e6 })
	return c, nil
}

// spread returns average, minimum and maximum of a figure over the ranks.
func (s *session) spread(mine float64) (measurement, error) {
	total, extremes := []float64{mine}, []float64{mine, -mine}
	if err := mpi.Allreduce(s.world, mpi.InPlace[float64](), total, mpi.Sum[float64]()); err != nil {
		return measurement{}, err
	}
	if err := mpi.Allreduce(s.world, mpi.InPlace[float64](), extremes, mpi.Max[float64]()); err != nil {
		return measurement{}, err
	}
	return measurement{value: total[0] / float64(s.world.Size()), min: -extremes[1], max: extremes[0]}, nil
}

func barrier(s *session) error {
	s.heading()
	c, err := s.each(0, nil, func() error { return mpi.Barrier(s.world) }, nil)
	if err != nil {
		return err
	}
	return s.onlyRow(&c)
}

func barrierOverlap(s *session) error {
	s.heading()
	c, err := s.overlaps(0, operation{start: func() (mpi.Request, error) { return mpi.Ibarrier(s.world) }})
	if err != nil {
		return err
	}
	return s.onlyRow(&c)
}

// onlyRow prints the row of a table without sizes.
func (s *session) onlyRow(c *measurement) error {
	c.iterations, _ = s.iterations(0)
	s.row(row(s.spec.columns, c))
	return s.out.err
}
