package mpi_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// TestFreeLetsOperationsEnd: operations of every kind that are under way when their communicator is freed end
// with the results that they have on one that is not (MPI 4.1, 7.4.3).
func TestFreeLetsOperationsEnd(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		together(t, 4, freePending, fabric)
		together(t, 5, freePending, fabric, "WEFT_CHECK=1")
	})
}

// pendingOperation begins an operation on a ring of ranks, with a block for each rank.
type pendingOperation func(g *mpi.Cart, in, out []int) (mpi.Request, error)

// block is the length of a block: more than a slot takes, so that messages are also announced.
const block = 2500

var pendingOperations = map[string]pendingOperation{
	"Ibarrier": func(g *mpi.Cart, in, out []int) (mpi.Request, error) { return mpi.Ibarrier(g.Comm()) },
	"Ibcast": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		copy(out[:block], in)
		return mpi.Ibcast(g.Comm(), out[:block], 1)
	},
	"Iallreduce": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Iallreduce(g.Comm(), in, out, mpi.Sum[int]())
	},
	"Iallreduce of one": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Iallreduce(g.Comm(), in[:1], out[:1], mpi.Sum[int]())
	},
	"Iallreduce with a function": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		op := mpi.NewOp(func(inout, in []int) {
			for i := range inout {
				inout[i] += in[i]
			}
		}, true)
		return mpi.Iallreduce(g.Comm(), in, out, op)
	},
	"Ireduce": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Ireduce(g.Comm(), in, out, mpi.Sum[int](), 2)
	},
	"Iscan": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Iscan(g.Comm(), in, out, mpi.Sum[int]())
	},
	"Iexscan": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Iexscan(g.Comm(), in[:1], out[:1], mpi.Sum[int]())
	},
	"Iallgather": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Iallgather(g.Comm(), in[:block], out)
	},
	"Iallgatherv": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Iallgatherv(g.Comm(), in[:block], out, equalCounts(g.Comm()), nil)
	},
	"Ialltoall": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Ialltoall(g.Comm(), in, out)
	},
	"Ialltoallv": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		n := equalCounts(g.Comm())
		return mpi.Ialltoallv(g.Comm(), in, n, nil, out, n, nil)
	},
	"Igather": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Igather(g.Comm(), in[:block], out, 0)
	},
	"Iscatter": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.Iscatter(g.Comm(), in, out[:block], 3)
	},
	"IreduceScatter": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.IreduceScatter(g.Comm(), in, out[:block], equalCounts(g.Comm()), mpi.Sum[int]())
	},
	"IreduceScatterBlock": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.IreduceScatterBlock(g.Comm(), in, out[:block], mpi.Sum[int]())
	},
	"IneighborAlltoall": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return mpi.IneighborAlltoall(g, in[:2*block], out[:2*block])
	},
	"AllreduceInit": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return startOf(mpi.AllreduceInit(g.Comm(), in, out, mpi.Sum[int]()))
	},
	"NeighborAllgatherInit": func(g *mpi.Cart, in, out []int) (mpi.Request, error) {
		return startOf(mpi.NeighborAllgatherInit(g, in[:block], out[:2*block]))
	},
}

func equalCounts(c *mpi.Comm) []int { return slices.Repeat([]int{block}, c.Size()) }

func startOf(p *mpi.Persistent, err error) (mpi.Request, error) {
	if err != nil {
		return mpi.Request{}, err
	}
	return p.Start()
}

// In each round one rank begins when another one has freed the communicator, so that messages come after Free.
var freePending = body("free pending", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	in := make([]int, size*block)
	for i := range in {
		in[i] = me*1_000_003 + i
	}
	results := func(g *mpi.Cart, begin pendingOperation, freed func() error) ([]int, error) {
		const n = 2 // under way at the same time
		out := make([]int, n*len(in))
		var requests []mpi.Request
		for i := range n {
			r, err := begin(g, in, out[i*len(in):][:len(in)])
			if err != nil {
				return nil, err
			}
			requests = append(requests, r)
		}
		return out, firstError(freed(), mpi.Waitall(requests))
	}
	round := 0
	for _, name := range slices.Sorted(maps.Keys(pendingOperations)) {
		begin := pendingOperations[name]
		var want []int
		for _, free := range []bool{false, true} {
			g, err := world.Cart([]int{size}, []bool{true}, false)
			if err != nil {
				return err
			}
			late := round % size
			token := make([]byte, 1)
			if free && me == late {
				if _, err := mpi.Recv(world, token, (late+1)%size, 0); err != nil {
					return err
				}
			}
			got, err := results(g, begin, func() error {
				if !free {
					return nil
				}
				err := g.Comm().Free()
				if err == nil && me == (late+1)%size {
					err = mpi.Send(world, token, late, 0)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if !free {
				want = got
				if err := g.Comm().Free(); err != nil {
					return err
				}
			}
			for i := range got {
				if got[i] != want[i] {
					return fmt.Errorf("%s: element %d is %d, and %d where nothing is freed", name, i, got[i],
						want[i])
				}
			}
		}
		round++
	}
	return nil
})
