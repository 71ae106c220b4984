package mpi_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// Two ranks renew their mailboxes after the same call, although only one of them takes the shortcut of repeated
// calls: the other one has a context.
var renewalBody = body("renewal", func(ctx context.Context, world *mpi.Comm) error {
	mpi.RenewMailboxesAfter(200_000)
	c, err := world.Dup()
	if err != nil {
		return err
	}
	if c.Rank() == 1 {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c = c.WithContext(ctx)
	}
	seen, most := map[any]bool{}, 0
	for i := range 600 {
		n := []int{1, 100, 5000, 16 << 10, 100 << 10}[i/7%5]
		v, sum := make([]byte, n), make([]byte, n)
		for j := range v {
			v[j] = byte(i)
		}
		if err := mpi.Allreduce(c, v, sum, mpi.Sum[byte]()); err != nil {
			return err
		}
		if err := mpi.Bcast(c, sum, i/7%2); err != nil {
			return err
		}
		if want := bytes.Repeat([]byte{byte(2 * i)}, n); !bytes.Equal(sum, want) {
			return fmt.Errorf("call %d has %d in place of %d", i, sum[0], want[0])
		}
		seen[mpi.Mailboxes(c)] = true
		most = max(most, mpi.CollectiveBytes(c))
	}
	fmt.Println("renewed", len(seen) > 20, "in a MiB", most < 1<<20)
	return c.Free()
})

func TestMailboxes_AreRenewed(t *testing.T) {
	r := launch(t, 2, renewalBody, "WEFT_FABRIC=shm")
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, strings.Repeat("renewed true in a MiB true\n", 2), r.Out)
}
