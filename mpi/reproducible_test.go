package mpi_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// reductionsVariable is how many random sums are compared on each number of ranks and each fabric; the
// requirement has 10,000.
const reductionsVariable = "WEFT_TEST_REDUCTIONS"

func randomReductions(less int) string {
	n := os.Getenv(reductionsVariable)
	if n == "" {
		n = strconv.Itoa(less)
	}
	return "REDUCTIONS=" + n
}

// TestReproducible_SameBitsOnAnyNumberOfRanks compares with sums of unlimited precision, which know of no
// ranks: so the bits are the same on all numbers of ranks, fabrics and by all algorithms.
func TestReproducible_SameBitsOnAnyNumberOfRanks(t *testing.T) {
	sizes := []int{1, 2, 5, 8}
	if testlength.Whole() {
		sizes = append(sizes, 3, 16)
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint("shm/", n), func(t *testing.T) {
			together(t, n, reproducible, "WEFT_FABRIC=shm", randomReductions(2000))
		})
	}
	for _, choice := range []string{"ring", "recursive-doubling", "pull", "direct", "in-order", "rabenseifner"} {
		t.Run(choice, func(t *testing.T) {
			together(t, 4, reproducible, "WEFT_FABRIC=shm", randomReductions(1000), "WEFT_COLL=allreduce:"+choice)
		})
	}
	t.Run("tcp", func(t *testing.T) { together(t, 4, reproducible, "WEFT_FABRIC=tcp", randomReductions(1000)) })
}

// exactly are the sums of the first number, of two, and so on, each rounded once.
func exactly(x []float64) []float64 {
	total, v, sums := new(big.Float).SetPrec(2200), new(big.Float).SetPrec(2200), make([]float64, len(x))
	for i := range x {
		total.Add(total, v.SetFloat64(x[i]))
		sums[i], _ = total.Float64()
	}
	return sums
}

// contributions are numbers that ranks sum, and the sums.
type contributions struct {
	root int
	of   [][]float64 // by rank
	upTo [][]float64 // the sums of those of the ranks up to one
}

// drawn are the contributions of a job, which has all its ranks in one process: exact sums take long, so the
// ranks share them.
var drawn struct {
	sync.Mutex
	size, elements int
	rounds         []contributions
}

// drawContributions returns rounds with so many elements at least, the same at all ranks.
func drawContributions(size, elements int) []contributions {
	drawn.Lock()
	defer drawn.Unlock()
	if drawn.size == size && drawn.elements == elements {
		return drawn.rounds
	}
	drawn.size, drawn.elements, drawn.rounds = size, elements, nil
	r := rand.New(rand.NewPCG(uint64(size), 11))
	for left := elements; left > 0; {
		n := []int{1, 2, 7, 100, 3000}[r.IntN(5)]
		left -= n
		wide := []int{1, 60, 300}[r.IntN(3)]
		c := contributions{of: make([][]float64, size), upTo: make([][]float64, size)}
		for rank := range size {
			c.of[rank], c.upTo[rank] = make([]float64, n), make([]float64, n)
		}
		x := make([]float64, size)
		for i := range n {
			for rank := range x {
				x[rank] = 0
				if r.IntN(4) > 0 { // the others' contributions are zero
					x[rank] = math.Ldexp(r.Float64()-0.5, r.IntN(wide))
				}
				c.of[rank][i] = x[rank]
			}
			for rank, sum := range exactly(x) {
				c.upTo[rank][i] = sum
			}
		}
		c.root = r.IntN(size)
		drawn.rounds = append(drawn.rounds, c)
	}
	return drawn.rounds
}

var reproducible = body("reproducible", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Reproducible()
	if err != nil {
		return err
	}
	if c, err = c.Dup(); err != nil { // which keeps it
		return err
	}
	me, size := c.Rank(), c.Size()
	for _, round := range drawContributions(size, number("REDUCTIONS")) {
		mine, sums, below, root := round.of[me], round.upTo[size-1], round.upTo[me], round.root
		n := len(mine)
		same := func(call string, got, wanted []float64) error {
			for i := range wanted {
				if math.Float64bits(got[i]) != math.Float64bits(wanted[i]) {
					return fmt.Errorf("%s of %d: element %d is %v, want %v", call, n, i, got[i], wanted[i])
				}
			}
			return nil
		}
		sum, out := mpi.Sum[float64](), make([]float64, n)
		if err := firstError(mpi.Allreduce(c, mine, out, sum), same("Allreduce", out, sums)); err != nil {
			return err
		}
		copy(out, mine)
		q, err := mpi.Iallreduce(c, mpi.InPlace[float64](), out, sum)
		if err == nil {
			_, err = q.Wait()
		}
		if err := firstError(err, same("Iallreduce in place", out, sums)); err != nil {
			return err
		}
		if me == root {
			clear(out)
		}
		if err := firstError(mpi.Reduce(c, mine, out, sum, root), same("Reduce", out, sums)); err != nil {
			return err
		}
		if err := firstError(mpi.Scan(c, mine, out, sum), same("Scan", out, below)); err != nil {
			return err
		}
		counts, first := make([]int, size), 0
		for rank := range counts {
			counts[rank] = (rank+1)*n/size - rank*n/size
			if rank < me {
				first += counts[rank]
			}
		}
		if err := firstError(mpi.ReduceScatter(c, mine, out, counts, sum),
			same("ReduceScatter", out, sums[first:first+counts[me]])); err != nil {
			return err
		}
	}
	return firstError(orderOfRanks(c), narrowSums(c))
})

// orderOfRanks: what is no sum is combined in the order of ranks, whatever the operator says of itself.
func orderOfRanks(c *mpi.Comm) error {
	hash := mpi.NewOp(func(inout, in []uint64) {
		for i := range inout {
			inout[i] = inout[i]*31 + in[i]
		}
	}, true)
	in, out := make([]uint64, 1000), make([]uint64, 1000)
	factors, product := make([]float64, 1000), make([]float64, 1000)
	for i := range in {
		in[i], factors[i] = uint64(c.Rank()+i), 1.1+float64(c.Rank()*i)
	}
	err := firstError(mpi.Allreduce(c, in, out, hash), mpi.Allreduce(c, factors, product, mpi.Prod[float64]()))
	for i := range out {
		wanted, times := uint64(i), 1.1
		for rank := 1; rank < c.Size(); rank++ {
			wanted, times = wanted*31+uint64(rank+i), times*(1.1+float64(rank*i))
		}
		err = firstError(err, want("hash in order", out[i], wanted), want("product in order", product[i], times))
	}
	return err
}

// narrowSums: float32 and complex numbers.
func narrowSums(c *mpi.Comm) error {
	x := []float32{1, 0x1p-24, 0x1p-60, -0x1p-149, 3}
	mine := float32(0)
	if c.Rank() < len(x) {
		mine = x[c.Rank()]
	}
	total := new(big.Float).SetPrec(500)
	for _, v := range x[:min(len(x), c.Size())] {
		total.Add(total, new(big.Float).SetPrec(500).SetFloat64(float64(v)))
	}
	wanted, _ := total.Float32()
	out, both := []float32{0}, []complex64{0}
	err := mpi.Allreduce(c, []float32{mine}, out, mpi.Sum[float32]())
	if err == nil {
		err = mpi.Allreduce(c, []complex64{complex(mine, -mine)}, both, mpi.Sum[complex64]())
	}
	return firstError(err, want("float32", out[0], wanted), want("real part", real(both[0]), wanted), want("imaginary part", imag(both[0]), -wanted))
}
