package mpi_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// Lengths of which collectives go through mailboxes, by messages, and straight from the other ranks' memory.
var unlikeLengths = []int{8, 6 << 10, 64 << 10}

// unlike are collectives on so many bytes of this rank. All are called where ranks have mailboxes.
var unlike = map[string]func(c *mpi.Comm, n int) error{
	"Bcast": func(c *mpi.Comm, n int) error { return mpi.Bcast(c, make([]byte, n), 0) },
	"Allreduce": func(c *mpi.Comm, n int) error {
		return mpi.Allreduce(c, mpi.InPlace[int64](), make([]int64, n/8), mpi.Sum[int64]())
	},
	"Allgather": func(c *mpi.Comm, n int) error {
		return mpi.Allgather(c, make([]byte, n), make([]byte, n*c.Size()))
	},
	"Alltoall": func(c *mpi.Comm, n int) error {
		return mpi.Alltoall(c, make([]byte, n*c.Size()), make([]byte, n*c.Size()))
	},
	"ReduceScatter": func(c *mpi.Comm, n int) error {
		counts := make([]int, c.Size())
		for i := range counts {
			counts[i] = n / 8
		}
		return mpi.ReduceScatter(c, make([]int64, n/8*c.Size()), make([]int64, n/8), counts, mpi.Sum[int64]())
	},
	"ReduceScatterBlock": func(c *mpi.Comm, n int) error {
		return mpi.ReduceScatterBlock(c, make([]int64, n/8*c.Size()), make([]int64, n/8), mpi.Sum[int64]())
	},
	"Reduce": func(c *mpi.Comm, n int) error {
		return mpi.Reduce(c, make([]int64, n/8), make([]int64, n/8), mpi.Sum[int64](), 0)
	},
}

var unlikeBody = body("unlike lengths", func(_ context.Context, world *mpi.Comm) error {
	for range 20 {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
	}
	n := unlikeLengths[number("OTHERS")]
	if world.Rank() == number("ODD_RANK") {
		n = unlikeLengths[number("ODD")]
	}
	call := unlike[os.Getenv("OPERATION")]
	err := call(world, n)
	if err == nil {
		err = mpi.Barrier(world) // not every rank can know: the failure of another ends it
	}
	if err == nil {
		return fmt.Errorf("the mistake was not found")
	}
	return err
})

// TestCollectivesOfUnlikeLengthsFail: ranks that carry a collective out in different ways, because their
// lengths differ, find out.
func TestCollectivesOfUnlikeLengthsFail(t *testing.T) {
	t.Parallel()
	for name := range unlike {
		for odd := range unlikeLengths {
			for others := range unlikeLengths {
				// in short one other length for each
				if odd == others || testing.Short() && odd != (others+1+len(name)%2)%len(unlikeLengths) {
					continue
				}
				n := 2 + (odd+others)%2
				for rank := range n - 1 { // of two ranks, the other is the same pair
					if !testlength.Whole() && n > 2 && rank != (odd+len(name))%2 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%d bytes at rank %d, %d elsewhere", name, unlikeLengths[odd], rank,
						unlikeLengths[others]), func(t *testing.T) {
						t.Parallel()
						r := launch(t, n, unlikeBody, "WEFT_FABRIC=shm", "OPERATION="+name,
							fmt.Sprintf("ODD=%d", odd), fmt.Sprintf("OTHERS=%d", others),
							fmt.Sprintf("ODD_RANK=%d", rank))
						require.Error(t, r.Failure)
						// who has sent its part and gone on is in another collective
						assert.Regexp(t, "another length|instead of the|different collectives", r.Err)
						assert.NotContains(t, r.Err, "not found")
					})
				}
			}
		}
	}
}
