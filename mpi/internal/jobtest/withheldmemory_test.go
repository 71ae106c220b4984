//go:build linux

package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/faulttest"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// withholdsMemory: rank 1 sends from memory whose pages never come. Rank 0, which reads them, gives it up, and
// is itself not given up by rank 2, which waits for it meanwhile.
var withholdsMemory = launchertest.Body("a rank sends from memory whose pages never come", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		word := []int64{0}
		switch world.Rank() {
		case 1:
			m, err := faulttest.New(1 << 20)
			if err != nil {
				return err
			}
			return mpi.Send(world, m.Bytes, 0, 0)
		case 2:
			_, err := mpi.Recv(world, word, 0, 0)
			return err
		}
		_, err := mpi.Recv(world, make([]byte, 1<<20), 1, 0)
		var e *mpi.Error
		if !errors.As(err, &e) || !errors.Is(err, mpi.ErrProcFailed) || e.Peer != 1 {
			return fmt.Errorf("got %v; want ErrProcFailed with peer 1", err)
		}
		fmt.Println(err)
		return mpi.Send(world, word, 2, 0)
	})
})

func TestRankWhoseMemoryNeverComesIsGivenUp(t *testing.T) {
	t.Parallel()
	m, err := faulttest.New(os.Getpagesize())
	if err != nil {
		t.Skip(err)
	}
	m.Serve()
	r := launchertest.RunSurviving(t, launchertest.Ranks(3, withholdsMemory, "WEFT_FABRIC=shm",
		"WEFT_PEER_TIMEOUT=4s"))
	// What rank 0 returns may be that the launcher has reported the loss of the killed process.
	require.Regexp(t, "a peer is given up, and its process killed.*a copy of memory of process", r.Err)
	require.NotContains(t, r.Err, "got ")
	require.NotContains(t, r.Err, "rank 0 ")
}
