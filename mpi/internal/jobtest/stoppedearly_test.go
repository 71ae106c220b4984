//go:build linux

package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// stopsFirst: rank 1 stops before it is connected with anybody; rank 0 waits for a message of it.
var stopsFirst = launchertest.Body("a rank stops before it is connected", func() error {
	return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		from := 1
		if os.Getenv("FROM_ANY") != "" {
			from = mpi.AnySource
		}
		_, err := mpi.Recv(world, make([]int, 1), from, 0)
		var e *mpi.Error
		if !errors.As(err, &e) || !errors.Is(err, mpi.ErrProcFailed) || e.Peer != 1 {
			return fmt.Errorf("got %v; want ErrProcFailed with peer 1", err)
		}
		fmt.Println("given up")
		return nil
	})
})

// A rank that stops before it is connected with the one that waits for it is given up too.
func TestStoppedBeforeItIsConnected(t *testing.T) {
	t.Parallel()
	for _, fabric := range []string{"shm", "tcp"} {
		for name, any := range map[string]string{"": "FROM_ANY=", " from any source": "FROM_ANY=1"} {
			t.Run(fabric+name, func(t *testing.T) {
				t.Parallel()
				r := launchertest.RunSurviving(t, launchertest.Ranks(2, stopsFirst, "WEFT_FABRIC="+fabric,
					"WEFT_PEER_TIMEOUT=1s", "WEFT_CONNECT_TIMEOUT=1s", any))
				require.Contains(t, r.Out, "given up")
				require.NotContains(t, r.Err, "got ")
			})
		}
	}
}
