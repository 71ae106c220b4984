package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// mistakeVariable says which mistake the ranks make.
const mistakeVariable = "MPI_TEST_MISTAKE"

// mistakes are calls that do not fit together at the ranks. The text of the failure has to contain says.
var mistakes = map[string]struct {
	call func(c *mpi.Comm, odd bool) error // odd at the rank that differs from the others
	says string
}{
	"nil at one rank of Bcast": {func(c *mpi.Comm, odd bool) error {
		return mpi.Bcast(c,
			unless(odd), 0)
	}, "Bcast"},
	"nil at the root of Bcast": {func(c *mpi.Comm, odd bool) error {
		return mpi.Bcast(c,
			unless(odd), 1)
	}, "Bcast"},
	"shorter at one rank of Bcast": {func(c *mpi.Comm, odd bool) error {
		return mpi.Bcast(c,
			unless(false)[half(odd):], 0)
	}, "length"},
	"nil at one rank of Allreduce": {allreduceOf, "Allreduce"},
	"nil at one rank of Gather": {func(c *mpi.Comm, odd bool) error {
		return mpi.Gather(c,
			unless(odd), blocksAt(c, 0), 0)
	}, "Gather"},
	"nil at one rank of Gatherv":       {gathervOf, "Gatherv"},
	"nothing sent in Alltoallv":        {alltoallvSends, "Alltoallv"},
	"nothing expected in Alltoallv":    {alltoallvExpects, "Alltoallv"},
	"Barrier against Bcast":            {barrierOrBcast, "different collectives"},
	"Bcast against Reduce":             {bcastOrReduce, "different collectives"},
	"Dup against Barrier":              {dupOrBarrier, "or a new communicator"},
	"InPlace at all ranks of Reduce":   {inPlaceReduce, "InPlace"},
	"InPlace at all ranks of Gather":   {inPlaceGather, "InPlace"},
	"non-blocking, different lengths":  {iallreduceOf, "length"},
	"non-blocking, Barrier and Gather": {ibarrierOrGather, "different collectives"},
}

func unless(odd bool) []int {
	if odd {
		return nil
	}
	return make([]int, 4)
}

func half(odd bool) int {
	if odd {
		return 2
	}
	return 0
}

func blocksAt(c *mpi.Comm, root int) []int {
	if c.Rank() != root {
		return nil
	}
	return make([]int, 4*c.Size())
}

func allreduceOf(c *mpi.Comm, odd bool) error {
	return mpi.Allreduce(c, unless(odd), unless(odd), mpi.Sum[int]())
}

func iallreduceOf(c *mpi.Comm, odd bool) error {
	buf := make([]int, 1000-half(odd))
	r, err := mpi.Iallreduce(c, mpi.InPlace[int](), buf, mpi.Sum[int]())
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

func gathervOf(c *mpi.Comm, odd bool) error {
	counts := make([]int, c.Size())
	for i := range counts {
		counts[i] = 4
	}
	return mpi.Gatherv(c, unless(odd), blocksAt(c, 0), counts, nil, 0)
}

// alltoallvSends: one rank sends nothing where the others expect something.
func alltoallvSends(c *mpi.Comm, odd bool) error {
	return alltoallvOf(c, map[bool]int{false: 4}[odd], 4)
}

// alltoallvExpects: one rank expects nothing where the others send something.
func alltoallvExpects(c *mpi.Comm, odd bool) error {
	return alltoallvOf(c, 4, map[bool]int{false: 4}[odd])
}

func alltoallvOf(c *mpi.Comm, sent, expected int) error {
	sends, expects := make([]int, c.Size()), make([]int, c.Size())
	for rank := range sends {
		sends[rank], expects[rank] = sent, expected
		if rank == c.Rank() {
			sends[rank], expects[rank] = 4, 4
		}
	}
	in, out := make([]int, 4*c.Size()), make([]int, 4*c.Size())
	return mpi.Alltoallv(c, in, sends, nil, out, expects, nil)
}

func barrierOrBcast(c *mpi.Comm, odd bool) error {
	if odd {
		return mpi.Bcast(c, unless(false), 1)
	}
	return mpi.Barrier(c)
}

func bcastOrReduce(c *mpi.Comm, odd bool) error {
	if odd {
		return mpi.Reduce(c, unless(false), unless(false), mpi.Sum[int](), 0)
	}
	return mpi.Allreduce(c, unless(false), unless(false), mpi.Sum[int]())
}

func dupOrBarrier(c *mpi.Comm, odd bool) error {
	if odd {
		return mpi.Barrier(c)
	}
	_, err := c.Dup()
	return err
}

func inPlaceReduce(c *mpi.Comm, _ bool) error {
	return mpi.Reduce(c, mpi.InPlace[int](), unless(false), mpi.Sum[int](), 0)
}

func inPlaceGather(c *mpi.Comm, _ bool) error {
	return mpi.Gather(c, mpi.InPlace[int](), blocksAt(c, 0), 0)
}

func ibarrierOrGather(c *mpi.Comm, odd bool) error {
	if odd {
		return mpi.Gather(c, unless(false), nil, 0)
	}
	r, err := mpi.Ibarrier(c)
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

var mistaken = body("mistaken", func(_ context.Context, world *mpi.Comm) error {
	m := mistakes[os.Getenv(mistakeVariable)]
	err := m.call(world, world.Rank() == 1)
	if err == nil {
		// Not every rank can know. This one waits, and the failure of another ends it.
		err = mpi.Barrier(world)
	}
	if err == nil {
		return errors.New("the mistake was not found")
	}
	return err
})

// Calls that do not fit together end with an error that says so, at a rank that can know, and that ends the
// others.
func TestCollectivesThatDoNotFitTogetherFail(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		for name, m := range mistakes {
			n := 2 + len(name)%2 // two ranks on one fabric, three on the other
			if fabric == "WEFT_FABRIC=tcp" {
				n = 5 - n
			}
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				t.Parallel()
				r := launch(t, n, mistaken, fabric, mistakeVariable+"="+name)
				require.Error(t, r.Failure)
				assert.Contains(t, r.Err, m.says)
				assert.NotContains(t, r.Err, "not found")
			})
		}
	})
}

// The rank whose call differs is named by its rank in the communicator and in the world, and the lengths of
// both are, also in a mailbox.
func TestMismatchInASplitCommunicator(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { anywhere(t, 3, mismatchInSplit, fabric) })
}

var mismatchInSplit = body("mismatch in a split", func(_ context.Context, world *mpi.Comm) error {
	for _, barriers := range []int{0, 20} { // after some, collectives may go through mailboxes
		lengths := "its length is 80 bytes, and this rank's is 160"
		if barriers == 0 || os.Getenv("WEFT_FABRIC") == "tcp" {
			lengths = "it sent 80 bytes, and this rank expects 160"
		}
		c, err := world.Split(min(world.Rank(), 1), 0)
		if err != nil {
			return err
		}
		for range barriers {
			if err := mpi.Barrier(c); err != nil {
				return err
			}
		}
		err = mpi.Bcast(c, make([]int64, 10*world.Rank()), 0)
		if world.Rank() == 2 {
			if err := wantError("Bcast", err, mpi.ErrCount); err != nil {
				return err
			}
			for _, text := range []string{"rank 0 (world rank 1)", lengths} {
				if !strings.Contains(err.Error(), text) {
					return fmt.Errorf("the error does not say %q: %w", text, err)
				}
			}
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
	}
	return nil
})
