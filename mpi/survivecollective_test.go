package mpi_test

import (
	"fmt"
	"strings"

	"github.com/weft-mpi/weft/mpi"
)

// struckCollectives are the collectives in which ranks die. Each checks its result if it has one, and none
// needs Revoke: whatever a rank of the communicator does, they end at all of its ranks.
var struckCollectives = []strike{
	{"Barrier", func(c *mpi.Comm, _ int64) error { return mpi.Barrier(c) }},
	{"Bcast", func(c *mpi.Comm, n int64) error {
		root := rootOf(c, n)
		data := contribution(root, n, lengthIn(n))
		if c.Rank() != root {
			clear(data)
		}
		call := mpi.Bcast[int64]
		if n/4%2 == 1 {
			call = func(c *mpi.Comm, data []int64, root int) error { return mpi.BcastView(c, mpi.Whole(data), root) }
		}
		return right("Bcast", data, call(c, data, root), func(i int) int64 { return of(root, n, i) })
	}},
	{"Reduce", func(c *mpi.Comm, n int64) error {
		in, root := contribution(c.Rank(), n, lengthIn(n)), rootOf(c, n)
		out := make([]int64, len(in))
		err := mpi.Reduce(c, in, out, mpi.Sum[int64](), root)
		if c.Rank() != root {
			return err
		}
		return right("Reduce", out, err, sumOver(0, c.Size(), n))
	}},
	{"Allreduce", func(c *mpi.Comm, n int64) error {
		in := contribution(c.Rank(), n, lengthIn(n))
		out := make([]int64, len(in))
		return right("Allreduce", out, mpi.Allreduce(c, in, out, mpi.Sum[int64]()), sumOver(0, c.Size(), n))
	}},
	{"AllreduceShort", func(c *mpi.Comm, n int64) error { // through mailboxes where there are some
		out := contribution(c.Rank(), n, 1)
		err := mpi.Allreduce(c, mpi.InPlace[int64](), out, mpi.Sum[int64]())
		return right("Allreduce", out, err, sumOver(0, c.Size(), n))
	}},
	{"Gather", func(c *mpi.Comm, n int64) error {
		in, root := contribution(c.Rank(), n, lengthIn(n)), rootOf(c, n)
		var out []int64
		if c.Rank() == root {
			out = make([]int64, c.Size()*len(in))
		}
		return right("Gather", out, mpi.Gather(c, in, out, root), blocks(n, len(in)))
	}},
	{"Gatherv", func(c *mpi.Comm, n int64) error {
		counts, from := ragged(c, n)
		in, root := contribution(c.Rank(), n, counts[c.Rank()]), rootOf(c, n)
		var out []int64
		if c.Rank() == root {
			out = make([]int64, from[c.Size()])
		}
		return right("Gatherv", out, mpi.Gatherv(c, in, out, counts, nil, root), raggedBlocks(n, from))
	}},
	{"Scatter", func(c *mpi.Comm, n int64) error {
		out, root := make([]int64, lengthIn(n)), rootOf(c, n)
		var in []int64
		if c.Rank() == root {
			in = make([]int64, c.Size()*len(out))
			set(in, blocks(n, len(out)))
		}
		return right("Scatter", out, mpi.Scatter(c, in, out, root), mine(c, n))
	}},
	{"Scatterv", func(c *mpi.Comm, n int64) error {
		counts, from := ragged(c, n)
		out, root := make([]int64, counts[c.Rank()]), rootOf(c, n)
		var in []int64
		if c.Rank() == root {
			in = make([]int64, from[c.Size()])
			set(in, raggedBlocks(n, from))
		}
		return right("Scatterv", out, mpi.Scatterv(c, in, counts, nil, out, root), mine(c, n))
	}},
	{"Allgather", func(c *mpi.Comm, n int64) error {
		in := contribution(c.Rank(), n, lengthIn(n))
		out := make([]int64, c.Size()*len(in))
		return right("Allgather", out, mpi.Allgather(c, in, out), blocks(n, len(in)))
	}},
	{"Allgatherv", func(c *mpi.Comm, n int64) error {
		counts, from := ragged(c, n)
		out := make([]int64, from[c.Size()])
		err := mpi.Allgatherv(c, contribution(c.Rank(), n, counts[c.Rank()]), out, counts, nil)
		return right("Allgatherv", out, err, raggedBlocks(n, from))
	}},
	{"Alltoall", func(c *mpi.Comm, n int64) error {
		block := lengthIn(n)
		in, out := make([]int64, c.Size()*block), make([]int64, c.Size()*block)
		set(in, func(i int) int64 { return of(c.Rank(), n, i/block) })
		err := mpi.Alltoall(c, in, out)
		return right("Alltoall", out, err, func(i int) int64 { return of(i/block, n, c.Rank()) })
	}},
	{"Alltoallv", func(c *mpi.Comm, n int64) error {
		give, given := ragged(c, n) // to each rank as much as its place says
		take, taken := make([]int, c.Size()), make([]int, c.Size()+1)
		for r := range take {
			take[r] = give[c.Rank()]
			taken[r+1] = taken[r] + take[r]
		}
		in, out := make([]int64, given[c.Size()]), make([]int64, taken[c.Size()])
		set(in, func(i int) int64 { return of(c.Rank(), n, blockOf(given, i)) })
		err := mpi.Alltoallv(c, in, give, nil, out, take, nil)
		return right("Alltoallv", out, err, func(i int) int64 { return of(blockOf(taken, i), n, c.Rank()) })
	}},
	{"Exchange", exchangeOnce},
	{"ExchangeBetweenHosts", func(c *mpi.Comm, n int64) error {
		mpi.SetHosts(c, []int{0, 0, 1, 1, 1})
		return exchangeOnce(c, n)
	}},
	{"AlltoallView", func(c *mpi.Comm, n int64) error {
		// every second row of a matrix goes to the ranks in turn
		rows := lengthIn(n)
		in, out := make([]int64, 2*rows*c.Size()), make([]int64, 2*rows*c.Size())
		set(in, func(i int) int64 { return of(c.Rank(), n, i/(2*rows)) })
		var send, recv []mpi.View[int64]
		for r := range c.Size() {
			send = append(send, mpi.Strided(in[2*rows*r:], rows, 1, 2))
			recv = append(recv, mpi.Strided(out[2*rows*r:], rows, 1, 2))
		}
		err := []func() error{
			func() error { return mpi.AlltoallView(c, send, recv) },
			func() error { return waited(mpi.IalltoallView(c, send, recv)) },
			func() error { return startedOnce(mpi.AlltoallViewInit(c, send, recv)) },
		}[n%3]()
		return right("AlltoallView", out, err, func(i int) int64 {
			if i%2 == 1 {
				return 0
			}
			return of(i/(2*rows), n, c.Rank())
		})
	}},
	{"ReduceScatter", func(c *mpi.Comm, n int64) error {
		counts, from := ragged(c, n)
		out := make([]int64, counts[c.Rank()])
		err := mpi.ReduceScatter(c, contribution(c.Rank(), n, from[c.Size()]), out, counts, mpi.Sum[int64]())
		all := sumOver(0, c.Size(), n)
		return right("ReduceScatter", out, err, func(i int) int64 { return all(from[c.Rank()] + i) })
	}},
	{"ReduceScatterBlock", func(c *mpi.Comm, n int64) error {
		out := make([]int64, lengthIn(n))
		in := contribution(c.Rank(), n, c.Size()*len(out))
		err := mpi.ReduceScatterBlock(c, in, out, mpi.Sum[int64]())
		all := sumOver(0, c.Size(), n)
		return right("ReduceScatterBlock", out, err, func(i int) int64 { return all(c.Rank()*len(out) + i) })
	}},
	{"Scan", func(c *mpi.Comm, n int64) error {
		out := make([]int64, lengthIn(n))
		err := mpi.Scan(c, contribution(c.Rank(), n, len(out)), out, mpi.Sum[int64]())
		return right("Scan", out, err, sumOver(0, c.Rank()+1, n))
	}},
	{"Exscan", func(c *mpi.Comm, n int64) error {
		out := make([]int64, lengthIn(n))
		err := mpi.Exscan(c, contribution(c.Rank(), n, len(out)), out, mpi.Sum[int64]())
		return right("Exscan", out, err, sumOver(0, c.Rank(), n))
	}},
	{"Values", func(c *mpi.Comm, n int64) error { return struckValues[n%int64(len(struckValues))](c, n) }},
	{"Nonblocking", func(c *mpi.Comm, n int64) error { // several at a time, waited for in another order
		a, b := make([]int64, lengthIn(n)), make([]int64, 2)
		gathered := make([]int64, c.Size()*3)
		r1, err1 := mpi.Iallreduce(c, contribution(c.Rank(), n, len(a)), a, mpi.Sum[int64]())
		r2, err2 := mpi.Ibarrier(c)
		r3, err3 := mpi.Iscan(c, contribution(c.Rank(), n, 2), b, mpi.Sum[int64]())
		r4, err4 := mpi.Iallgather(c, contribution(c.Rank(), n, 3), gathered)
		err := firstError(mpi.Waitall([]mpi.Request{r4, r3, r2, r1}), err1, err2, err3, err4)
		return firstError(right("Iallreduce", a, err, sumOver(0, c.Size(), n)),
			right("Iscan", b, err, sumOver(0, c.Rank()+1, n)),
			right("Iallgather", gathered, err, blocks(n, 3)))
	}},
	{"Persistent", func(c *mpi.Comm, n int64) error {
		in, out := make([]int64, lengthIn(n)), make([]int64, lengthIn(n))
		p, err := mpi.AllreduceInit(c, in, out, mpi.Sum[int64]())
		for k := n; k < n+3 && err == nil; k++ {
			copy(in, contribution(c.Rank(), k, len(in)))
			err = right("Allreduce", out, waited(p.Start()), sumOver(0, c.Size(), k))
		}
		return err
	}},
	{"Neighbors", func(c *mpi.Comm, n int64) error {
		t, err := gridOf(c)
		if err != nil {
			return err
		}
		block := lengthIn(n)
		in, out := make([]int64, 2*block), make([]int64, 2*block)
		left, right1 := t.Shift(0, 1)
		set(in, func(i int) int64 { return of(c.Rank(), n, i/block) })
		// the block for the lower neighbor comes from the upper one
		err = right("NeighborAlltoall", out, mpi.NeighborAlltoall(t, in, out), func(i int) int64 {
			if i < block {
				return of(left, n, 1)
			}
			return of(right1, n, 0)
		})
		if err != nil {
			return err
		}
		err = mpi.NeighborAllgather(t, contribution(c.Rank(), n, block), out)
		err = right("NeighborAllgather", out, err, func(i int) int64 {
			if i < block {
				return of(left, n, i)
			}
			return of(right1, n, i-block)
		})
		if err != nil {
			return err
		}
		// every second element, from either side
		views := func(b []int64) []mpi.View[int64] {
			return []mpi.View[int64]{mpi.Strided(b, block, 1, 2), mpi.Strided(b[1:], block, 1, 2)}
		}
		set(in, func(i int) int64 { return of(c.Rank(), n, i%2) })
		err = []func() error{
			func() error { return mpi.NeighborAlltoallView(t, views(in), views(out)) },
			func() error { return waited(mpi.IneighborAlltoallView(t, views(in), views(out))) },
			func() error { return startedOnce(mpi.NeighborAlltoallViewInit(t, views(in), views(out))) },
		}[n%3]()
		return right("NeighborAlltoallView", out, err, func(i int) int64 {
			if i%2 == 0 {
				return of(left, n, 1)
			}
			return of(right1, n, 0)
		})
	}},
}

// struckValues are the collectives on values.
var struckValues = []func(c *mpi.Comm, n int64) error{
	func(c *mpi.Comm, n int64) error {
		all, err := mpi.AllgatherValues(c, textOfRound(c.Rank(), n))
		return rightTexts("AllgatherValues", all, err, func(rank int) string { return textOfRound(rank, n) })
	},
	func(c *mpi.Comm, n int64) error {
		text, err := mpi.BcastValue(c, textOfRound(c.Rank(), n), rootOf(c, n))
		return rightTexts("BcastValue", []string{text}, err, func(int) string { return textOfRound(rootOf(c, n), n) })
	},
	func(c *mpi.Comm, n int64) error {
		all, err := mpi.GatherValues(c, textOfRound(c.Rank(), n), rootOf(c, n))
		return rightTexts("GatherValues", all, err, func(rank int) string { return textOfRound(rank, n) })
	},
	func(c *mpi.Comm, n int64) error {
		text, err := mpi.ScatterValues(c, textsTo(c, c.Rank(), n), rootOf(c, n))
		return rightTexts("ScatterValues", []string{text}, err,
			func(int) string { return textsTo(c, rootOf(c, n), n)[c.Rank()] })
	},
	func(c *mpi.Comm, n int64) error {
		all, err := mpi.AlltoallValues(c, textsTo(c, c.Rank(), n))
		return rightTexts("AlltoallValues", all, err, func(rank int) string { return textsTo(c, rank, n)[c.Rank()] })
	},
	func(c *mpi.Comm, n int64) error {
		sum, err := mpi.ReduceValue(c, of(c.Rank(), n, 0), mpi.Sum[int64](), rootOf(c, n))
		if c.Rank() != rootOf(c, n) {
			return err
		}
		return right("ReduceValue", []int64{sum}, err, sumOver(0, c.Size(), n))
	},
	func(c *mpi.Comm, n int64) error {
		sum, err := mpi.ExscanValue(c, of(c.Rank(), n, 0), mpi.Sum[int64]())
		return right("ExscanValue", []int64{sum}, err, sumOver(0, c.Rank(), n))
	},
}

func textOfRound(rank int, n int64) string {
	return strings.Repeat(fmt.Sprint(rank, ":", n, " "), lengthIn(n))
}

// textsTo are what a rank sends to each.
func textsTo(c *mpi.Comm, from int, n int64) (texts []string) {
	for rank := range c.Size() {
		texts = append(texts, textOfRound(from*c.Size()+rank, n))
	}
	return texts
}

func rightTexts(call string, got []string, err error, want func(rank int) string) error {
	if err != nil {
		return err
	}
	for rank, text := range got {
		if text != want(rank) {
			return fmt.Errorf("%s reports success, and value %d is %.40q, not %.40q", call, rank, text, want(rank))
		}
	}
	return nil
}

// of is element i of what a rank contributes in a round.
func of(rank int, n int64, i int) int64 { return int64(rank+1)*1_000_003 + n*1009 + int64(i) }

func set(data []int64, what func(i int) int64) {
	for i := range data {
		data[i] = what(i)
	}
}

func contribution(rank int, n int64, length int) []int64 {
	data := make([]int64, length)
	set(data, func(i int) int64 { return of(rank, n, i) })
	return data
}

// lengthIn is the number of elements of a round: short, of a slot or two, and more than any slot carries.
func lengthIn(n int64) int { return []int{3, 700, 5, many / 4}[n%4] }

func rootOf(c *mpi.Comm, n int64) int { return int(n) % c.Size() }

// ragged are counts that differ from rank to rank, and where each block begins.
func ragged(c *mpi.Comm, n int64) (counts, from []int) {
	from = []int{0}
	for r := range c.Size() {
		counts = append(counts, (r+int(n))%3*lengthIn(n)/2)
		from = append(from, from[r]+counts[r])
	}
	return counts, from
}

// blockOf is the block that element i is in.
func blockOf(from []int, i int) int {
	r := 0
	for from[r+1] <= i {
		r++
	}
	return r
}

// blocks are the contributions of all ranks, one after another.
func blocks(n int64, length int) func(int) int64 {
	return func(i int) int64 { return of(i/length, n, i%length) }
}

func raggedBlocks(n int64, from []int) func(int) int64 {
	return func(i int) int64 {
		r := blockOf(from, i)
		return of(r, n, i-from[r])
	}
}

func mine(c *mpi.Comm, n int64) func(int) int64 {
	return func(i int) int64 { return of(c.Rank(), n, i) }
}

// sumOver is the sum of the contributions of ranks low to high-1.
func sumOver(low, high int, n int64) func(int) int64 {
	return func(i int) (sum int64) {
		for r := low; r < high; r++ {
			sum += of(r, n, i)
		}
		return sum
	}
}

// right returns a call's error, or that the result is wrong which it has reported as success.
func right(call string, got []int64, err error, want func(i int) int64) error {
	if err != nil {
		return err
	}
	for i, v := range got {
		if v != want(i) {
			return fmt.Errorf("%s reports success, and element %d of %d is %d, not %d", call, i, len(got), v, want(i))
		}
	}
	return nil
}

// grid is the ring of the communicator that was used last.
var grid struct {
	of *mpi.Comm
	*mpi.Cart
}

// gridOf makes a ring of a communicator once.
func gridOf(c *mpi.Comm) (*mpi.Cart, error) {
	if grid.of == c {
		return grid.Cart, nil
	}
	t, err := c.Cart([]int{c.Size()}, []bool{true}, false)
	if err == nil {
		grid.of, grid.Cart = c, t
	}
	return t, err
}

// exchangeOnce has each rank send to itself and to the two ranks after it, each as much as its place says.
func exchangeOnce(c *mpi.Comm, n int64) error {
	counts, _ := ragged(c, n)
	to := map[int][]int64{}
	for i := range min(3, c.Size()) {
		r := (c.Rank() + i) % c.Size()
		to[r] = contribution(c.Rank(), n, counts[r])
	}
	from, err := mpi.Exchange(c, to)
	if err != nil {
		return err
	}
	if len(from) != len(to) {
		return fmt.Errorf("Exchange reports success, and %d messages of %d have come", len(from), len(to))
	}
	for i := range len(to) {
		r := (c.Rank() - i + c.Size()) % c.Size()
		if len(from[r]) != counts[c.Rank()] {
			return fmt.Errorf("Exchange reports success, and %d of %d elements of rank %d have come",
				len(from[r]), counts[c.Rank()], r)
		}
		if err := right("Exchange", from[r], nil, func(i int) int64 { return of(r, n, i) }); err != nil {
			return err
		}
	}
	return nil
}
