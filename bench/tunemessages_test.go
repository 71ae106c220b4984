package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

var forcedWaysBody = worldBody("forced ways", func(world *mpi.Comm) error {
	x, err := newTuner(briefly(""), world, os.Stdout)
	if err != nil {
		return err
	}
	for n := 4096; n <= 64<<10; n *= 2 {
		for _, w := range messageWays {
			if err := x.goesBy(w, n); err != nil {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
		}
	}
	return nil
})

// goesBy has messages go a way. A receiver that does not wait on a busy machine may prevent it in some runs.
func (t *tuner) goesBy(w messageWay, n int) error {
	var got, want string
	for range 50 {
		_, announced, err := t.messageTime(t.world, w.way, n, 1e-3)
		if err != nil {
			return err
		}
		fabric := fabricTo(t.world)
		got, want = wayName(fabric, announced, n), wayName(fabric, w.announced, n)
		wrong := []int32{0}
		if got != want {
			wrong[0] = 1
		}
		err = mpi.Allreduce(t.world, mpi.InPlace[int32](), wrong, mpi.Sum[int32]())
		if err != nil || wrong[0] == 0 {
			return err
		}
	}
	return fmt.Errorf("rank %d sent by %s, not by %s", t.world.Rank(), got, want)
}

// Within one job, messages go the way that is forced, at every size at which it exists.
func TestTuneMessages_ForcedWays(t *testing.T) {
	launchertest.OnFabrics(t, func(t *testing.T, fabric string) {
		launchertest.Succeed(t, 2, forcedWaysBody, "WEFT_LOG=error", "WEFT_CORES_PER_RANK=1", fabric)
	})
}

var messagesBody = launchertest.Body("messages", func() error {
	o := briefly("")
	o.All = true
	o.Collectives = []string{messageName, "Barrier"}
	return Tune(context.Background(), o, Invocation{}, os.Stdout)
})

// The first two ranks of a job compare the ways of their messages.
func TestTuneMessages(t *testing.T) {
	testlength.NotInShort(t)
	launchertest.OnFabrics(t, func(t *testing.T, fabric string) {
		r := launchertest.Launch(t, 3, messagesBody, "WEFT_LOG=error", fabric)
		require.NoError(t, r.Failure, r.Err)
		require.Equal(t, 5, strings.Count(r.Out, "\nSend "), r.Out)
		require.Contains(t, r.Out, "of 7 points") // 5 sizes, and the Barrier of 2 and of 3 ranks
	})
}
