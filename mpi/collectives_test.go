package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// matrix is an element whose product does not commute; its arithmetic wraps, so it is associative.
type matrix [2][2]int32

func (a matrix) times(b matrix) (p matrix) {
	for i := range 2 {
		for j := range 2 {
			p[i][j] = a[i][0]*b[0][j] + a[i][1]*b[1][j]
		}
	}
	return p
}

func matrixOf(rank, i int) matrix {
	return matrix{{int32(rank + 1), int32(i%7 + 1)}, {int32(rank%3 + 2), int32(rank*5 + i)}}
}

// matrices are the elements of a rank from one index up to another.
func matrices(rank, from, to int) []matrix {
	m := make([]matrix, 0, max(to-from, 0))
	for i := from; i < to; i++ {
		m = append(m, matrixOf(rank, i))
	}
	return m
}

// product is that of the elements of ranks from one up to another.
func product(first, last, from, to int) []matrix {
	p := matrices(first, from, to)
	for rank := first + 1; rank < last; rank++ {
		for i, m := range matrices(rank, from, to) {
			p[i] = p[i].times(m)
		}
	}
	return p
}

var times = mpi.NewOp(func(inout, in []matrix) {
	for i := range inout {
		inout[i] = inout[i].times(in[i])
	}
}, false)

// TestCollectivesInAllForms runs every collective, blocking, non-blocking and persistent, in place and not: on
// more numbers of ranks, and with more roots, at length.
func TestCollectivesInAllForms(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		sizes := []int{1, 4, 5}
		switch {
		case testlength.Whole():
			sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
		case fabric == "WEFT_FABRIC=tcp":
			sizes = []int{3} // the schedules are those of shared memory
		}
		for _, n := range sizes {
			t.Run(fmt.Sprint(n), func(t *testing.T) { together(t, n, allForms, fabric) })
		}
	})
}

var allForms = body("allForms", func(_ context.Context, world *mpi.Comm) error {
	size := world.Size()
	for _, n := range []int{0, 1, size - 1, size + 1, 97, 4099} {
		roots := []int{0, min(1, size-1), size - 1}
		if n != 97 && !testlength.Whole() {
			roots = []int{n % 2 * (size - 1)}
		}
		for _, root := range slices.Compact(roots) {
			if err := everyCollective(world, n, root); err != nil {
				return fmt.Errorf("%d elements, root %d: %w", n, root, err)
			}
		}
	}
	return nil
})

// outcome is a collective in its three forms, which write out, and what out is to be.
type outcome struct {
	name       string
	out        []matrix // nil where there is none
	before     []matrix // of out
	want       []matrix
	blocking   func() error
	begin      func() (mpi.Request, error)
	persistent func() (*mpi.Persistent, error)
}

func (o *outcome) check(form string) error {
	if sameMemory(o.out[:len(o.want)], o.want) {
		return nil
	}
	for i := range o.want {
		if o.out[i] != o.want[i] {
			return fmt.Errorf("%s, %s: element %d of %d is %v, want %v", o.name, form, i, len(o.want),
				o.out[i], o.want[i])
		}
	}
	return nil
}

// try carries a collective out in every form; several non-blocking ones are under way at once.
func try(outcomes []outcome) error {
	for i := range outcomes {
		o := &outcomes[i]
		copy(o.out, o.before)
		if err := o.blocking(); err != nil {
			return err
		}
		if err := o.check("blocking"); err != nil {
			return err
		}
		p, err := o.persistent()
		if err != nil {
			return err
		}
		for range 2 {
			copy(o.out, o.before)
			r, err := p.Start()
			if err == nil {
				_, err = r.Wait()
			}
			if err == nil {
				err = o.check("persistent")
			}
			if err != nil {
				return err
			}
		}
		if err := p.Free(); err != nil {
			return err
		}
	}
	var requests []mpi.Request
	for i := range outcomes {
		copy(outcomes[i].out, outcomes[i].before)
		r, err := outcomes[i].begin()
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	if err := mpi.Waitall(requests); err != nil {
		return err
	}
	for i := range outcomes {
		if err := outcomes[i].check("non-blocking"); err != nil {
			return err
		}
	}
	return nil
}

// lengthOf is the length of a rank's block where blocks differ.
func lengthOf(rank, n int) int { return (n + rank*3) % (n + 2) }

func everyCollective(c *mpi.Comm, n, root int) error {
	me, size := c.Rank(), c.Size()
	atRoot := me == root
	mine := matrices(me, 0, n)
	var all []matrix // the blocks of all ranks
	var counts, displs []int
	var uneven []matrix
	var sum []int
	end := 0
	for rank := range size {
		all = append(all, matrices(rank, 0, n)...)
		k := lengthOf(rank, n)
		counts, displs = append(counts, k), append(displs, end+1)
		uneven = append(append(uneven, matrix{}), matrices(rank, 0, k)...)
		end += k + 1
		sum = append(sum, k)
	}
	own := matrices(me, 0, lengthOf(me, n))
	rootOnly := func(b []matrix) []matrix {
		if atRoot {
			return b
		}
		return nil
	}
	fresh := func(b []matrix) []matrix { return make([]matrix, len(b)) }
	inPlaceAtRoot := func(b []matrix) []matrix {
		if atRoot {
			return mpi.InPlace[matrix]()
		}
		return b
	}
	there := mpi.InPlace[matrix]()
	var o []outcome
	add := func(name string, out, before, want []matrix, b func() error, i func() (mpi.Request, error),
		p func() (*mpi.Persistent, error)) {
		o = append(o, outcome{name, out, before, want, b, i, p})
	}

	add("Barrier", nil, nil, nil, func() error { return mpi.Barrier(c) },
		func() (mpi.Request, error) { return mpi.Ibarrier(c) },
		func() (*mpi.Persistent, error) { return mpi.BarrierInit(c) })
	b := fresh(mine)
	add("Bcast", b, rootOnly(mine), matrices(root, 0, n), func() error { return mpi.Bcast(c, b, root) },
		func() (mpi.Request, error) { return mpi.Ibcast(c, b, root) },
		func() (*mpi.Persistent, error) { return mpi.BcastInit(c, b, root) })

	for _, in := range [][]matrix{mine, inPlaceAtRoot(mine)} {
		out := rootOnly(fresh(all))
		before := slices.Clone(out)
		if atRoot {
			copy(before[root*n:], mine)
		}
		add("Gather", out, before, rootOnly(all), func() error { return mpi.Gather(c, in, out, root) },
			func() (mpi.Request, error) { return mpi.Igather(c, in, out, root) },
			func() (*mpi.Persistent, error) { return mpi.GatherInit(c, in, out, root) })
	}
	for _, in := range [][]matrix{own, inPlaceAtRoot(own)} {
		out := rootOnly(fresh(uneven))
		before := slices.Clone(out)
		if atRoot {
			copy(before[displs[root]:], own)
		}
		add("Gatherv", out, before, rootOnly(uneven), func() error {
			return mpi.Gatherv(c, in, out, counts,
				displs, root)
		},
			func() (mpi.Request, error) { return mpi.Igatherv(c, in, out, counts, displs, root) },
			func() (*mpi.Persistent, error) { return mpi.GathervInit(c, in, out, counts, displs, root) })
	}
	for _, inPlace := range []bool{false, true} {
		from := slices.Clone(rootOnly(all))
		out := fresh(mine)
		to := out
		if inPlace && atRoot {
			to, out = there, from[root*n:][:n]
		}
		add("Scatter", out, nil, mine, func() error { return mpi.Scatter(c, from, to, root) },
			func() (mpi.Request, error) { return mpi.Iscatter(c, from, to, root) },
			func() (*mpi.Persistent, error) { return mpi.ScatterInit(c, from, to, root) })
	}
	{
		from, out := slices.Clone(rootOnly(uneven)), fresh(own)
		add("Scatterv", out, nil, own, func() error {
			return mpi.Scatterv(c, from, counts, displs, out,
				root)
		},
			func() (mpi.Request, error) { return mpi.Iscatterv(c, from, counts, displs, out, root) },
			func() (*mpi.Persistent, error) { return mpi.ScattervInit(c, from, counts, displs, out, root) })
	}
	for _, in := range [][]matrix{mine, there} {
		out := fresh(all)
		before := fresh(all)
		copy(before[me*n:], mine)
		add("Allgather", out, before, all, func() error { return mpi.Allgather(c, in, out) },
			func() (mpi.Request, error) { return mpi.Iallgather(c, in, out) },
			func() (*mpi.Persistent, error) { return mpi.AllgatherInit(c, in, out) })
	}
	for _, in := range [][]matrix{own, there} {
		out := fresh(uneven)
		before := fresh(uneven)
		copy(before[displs[me]:], own)
		add("Allgatherv", out, before, uneven, func() error {
			return mpi.Allgatherv(c, in, out, counts,
				displs)
		},
			func() (mpi.Request, error) { return mpi.Iallgatherv(c, in, out, counts, displs) },
			func() (*mpi.Persistent, error) { return mpi.AllgathervInit(c, in, out, counts, displs) })
	}
	o = append(o, alltoalls(c, n)...)
	o = append(o, reductionsOf(c, n, root, mine, sum)...)
	return try(o)
}

// alltoalls sends element j of the vector of rank i, by the block.
func alltoalls(c *mpi.Comm, n int) (o []outcome) {
	me, size := c.Rank(), c.Size()
	var send, want []matrix
	var scounts, rcounts []int
	var vsend, vwant []matrix
	length := func(from, to int) int { return (from*5 + to*3 + n) % 7 * (n % 3) }
	symmetric := func(a, b int) int { return length(min(a, b), max(a, b)) }
	var icounts []int
	var isend, iwant []matrix
	for rank := range size {
		send = append(send, matrices(me, rank*n, (rank+1)*n)...)
		want = append(want, matrices(rank, me*n, (me+1)*n)...)
		k, l, m := length(me, rank), length(rank, me), symmetric(me, rank)
		scounts, rcounts, icounts = append(scounts, k), append(rcounts, l), append(icounts, m)
		vsend, vwant = append(vsend, matrices(me, rank, rank+k)...),
			append(vwant, matrices(rank, me, me+l)...)
		isend, iwant = append(isend, matrices(me, rank, rank+m)...),
			append(iwant, matrices(rank, me, me+m)...)
	}
	for _, inPlace := range []bool{false, true} {
		in, out := send, make([]matrix, len(want))
		if inPlace {
			in = mpi.InPlace[matrix]()
		}
		o = append(o, outcome{"Alltoall", out, send, want, func() error { return mpi.Alltoall(c, in, out) },
			func() (mpi.Request, error) { return mpi.Ialltoall(c, in, out) },
			func() (*mpi.Persistent, error) { return mpi.AlltoallInit(c, in, out) }})
	}
	vout := make([]matrix, len(vwant))
	o = append(o, outcome{"Alltoallv", vout, nil, vwant,
		func() error { return mpi.Alltoallv(c, vsend, scounts, nil, vout, rcounts, nil) },
		func() (mpi.Request, error) { return mpi.Ialltoallv(c, vsend, scounts, nil, vout, rcounts, nil) },
		func() (*mpi.Persistent, error) {
			return mpi.AlltoallvInit(c, vsend, scounts, nil, vout, rcounts,
				nil)
		}})
	there, iout := mpi.InPlace[matrix](), make([]matrix, len(iwant))
	return append(o, outcome{"Alltoallv in place", iout, isend, iwant,
		func() error { return mpi.Alltoallv(c, there, nil, nil, iout, icounts, nil) },
		func() (mpi.Request, error) { return mpi.Ialltoallv(c, there, nil, nil, iout, icounts, nil) },
		func() (*mpi.Persistent, error) { return mpi.AlltoallvInit(c, there, nil, nil, iout, icounts, nil) }})
}

func reductionsOf(c *mpi.Comm, n, root int, mine []matrix, counts []int) (o []outcome) {
	me, size := c.Rank(), c.Size()
	there := mpi.InPlace[matrix]()
	add := func(name string, out, before, want []matrix, b func() error, i func() (mpi.Request, error),
		p func() (*mpi.Persistent, error)) {
		o = append(o, outcome{name, out, before, want, b, i, p})
	}
	total, upToMe := product(0, size, 0, n), product(0, me+1, 0, n)
	below := mine // at rank 0 it stays as it is
	if me > 0 {
		below = product(0, me, 0, n)
	}
	vector, block := matrices(me, 0, n*size), product(0, size, me*n, (me+1)*n)
	from, all := 0, 0
	for rank, k := range counts {
		if rank < me {
			from += k
		}
		all += k
	}
	long, mineOfLong := matrices(me, 0, all), product(0, size, from, from+counts[me])
	for _, inPlace := range []bool{false, true} {
		in, rin := mine, mine
		if inPlace {
			in = there
			if me == root {
				rin = there
			}
		}
		out := make([]matrix, n)
		want := total
		if me != root {
			want = nil
		}
		add("Reduce", out, mine, want, func() error { return mpi.Reduce(c, rin, out, times, root) },
			func() (mpi.Request, error) { return mpi.Ireduce(c, rin, out, times, root) },
			func() (*mpi.Persistent, error) { return mpi.ReduceInit(c, rin, out, times, root) })
		aout := make([]matrix, n)
		add("Allreduce", aout, mine, total, func() error { return mpi.Allreduce(c, in, aout, times) },
			func() (mpi.Request, error) { return mpi.Iallreduce(c, in, aout, times) },
			func() (*mpi.Persistent, error) { return mpi.AllreduceInit(c, in, aout, times) })
		sout := make([]matrix, n)
		add("Scan", sout, mine, upToMe, func() error { return mpi.Scan(c, in, sout, times) },
			func() (mpi.Request, error) { return mpi.Iscan(c, in, sout, times) },
			func() (*mpi.Persistent, error) { return mpi.ScanInit(c, in, sout, times) })
		eout := make([]matrix, n)
		add("Exscan", eout, mine, below, func() error { return mpi.Exscan(c, in, eout, times) },
			func() (mpi.Request, error) { return mpi.Iexscan(c, in, eout, times) },
			func() (*mpi.Persistent, error) { return mpi.ExscanInit(c, in, eout, times) })

		bin, bout := vector, make([]matrix, n)
		if inPlace {
			bin, bout = there, make([]matrix, n*size)
		}
		add("ReduceScatterBlock", bout, vector, block,
			func() error { return mpi.ReduceScatterBlock(c, bin, bout, times) },
			func() (mpi.Request, error) { return mpi.IreduceScatterBlock(c, bin, bout, times) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterBlockInit(c, bin, bout, times) })
		vin, vout := long, make([]matrix, counts[me])
		if inPlace {
			vin, vout = there, make([]matrix, all)
		}
		add("ReduceScatter", vout, long, mineOfLong,
			func() error { return mpi.ReduceScatter(c, vin, vout, counts, times) },
			func() (mpi.Request, error) { return mpi.IreduceScatter(c, vin, vout, counts, times) },
			func() (*mpi.Persistent, error) { return mpi.ReduceScatterInit(c, vin, vout, counts, times) })
	}
	return o
}

// TestCollectiveMixture calls collectives in any order, on several communicators at once.
func TestCollectiveMixture(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		sizes := []int{1, 2, 5}
		if !testlength.Whole() && fabric == "WEFT_FABRIC=tcp" {
			sizes = []int{3}
		}
		for _, n := range sizes {
			t.Run(fmt.Sprint(n), func(t *testing.T) { anywhere(t, n, collectiveMixture, fabric) })
		}
	})
}

// Each goroutine has a communicator of its own, and an order that is the same at all ranks. Every result is
// checked.
var collectiveMixture = body("mixture of collectives", func(_ context.Context, world *mpi.Comm) error {
	const calls = 60
	mixed := slices.DeleteFunc(slices.Clone(struckCollectives), func(s strike) bool {
		// One has a grid, the other a placement of ranks, for the whole job.
		return s.name == "Neighbors" || s.name == "ExchangeBetweenHosts"
	})
	for _, call := range struckValues {
		mixed = append(mixed, strike{"Values", call})
	}
	errs := make([]error, 3)
	var group sync.WaitGroup
	for i := range errs {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		group.Go(func() {
			order := rand.New(rand.NewPCG(uint64(i), 37))
			for range calls {
				s, n := mixed[order.IntN(len(mixed))], order.Int64N(1000)
				if errs[i] = s.call(c, n); errs[i] != nil {
					errs[i] = fmt.Errorf("%s, round %d: %w", s.name, n, errs[i])
					return
				}
			}
			errs[i] = c.Free()
		})
	}
	group.Wait()
	return firstError(errs...)
})
