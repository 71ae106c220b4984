package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi"
)

// flagVariable names a file by which one rank tells another something without a word of MPI.
const flagVariable = "MPI_TEST_FLAG"

func raiseFlag(suffix string) error {
	return os.WriteFile(os.Getenv(flagVariable)+suffix, nil, 0o600)
}

// computeUntilFlag computes, and calls nothing of MPI, until the flag is there. That it never comes ends with
// the job's timeout.
func computeUntilFlag() (x uint64, err error) {
	for x = 1; ; {
		for range 1 << 20 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		if _, err := os.Stat(os.Getenv(flagVariable)); !errors.Is(err, fs.ErrNotExist) {
			return x, err
		}
	}
}

const (
	computeLarge = 4 << 20
	computeSlots = 12 << 10 // of a message that the small slots are too small for
)

// Rank 1 has posted its receives and computes. With a completion handler everything that rank 0 does with it
// comes to its end meanwhile: the channel grows, what was announced is fetched, and the sender hears of it.
var bodyComputes = body("computes", func(_ context.Context, world *mpi.Comm) error {
	large, slots := make([]byte, computeLarge), make([]byte, computeSlots)
	if world.Rank() == 1 {
		received, err := mpi.Irecv(world, large, 0, 1)
		if err != nil {
			return err
		}
		grown, err := mpi.Irecv(world, slots, 0, 2)
		if err != nil {
			return err
		}
		if _, err := computeUntilFlag(); err != nil {
			return err
		}
		if _, err = received.Wait(); err == nil {
			_, err = grown.Wait()
		}
		for i := range large {
			if large[i] != byte(i>>12) {
				return fmt.Errorf("byte %d is %d", i, large[i])
			}
		}
		return err
	}
	for i := range large {
		large[i] = byte(i >> 12)
	}
	if err := mpi.Ssend(world, slots, 1, 2); err != nil {
		return err
	}
	if err := mpi.Ssend(world, large, 1, 1); err != nil {
		return err
	}
	if err := growsTo(world, 1); err != nil {
		return err
	}
	return raiseFlag("")
})

// growsTo sends what is too large for small slots until the channel has grown; rank 1 receives none of it
// before the flag.
func growsTo(world *mpi.Comm, peer int) error {
	for {
		for _, c := range world.Stats().Channels {
			if c.Peer == peer && c.Phase > 0 {
				return nil
			}
		}
		if err := mpi.Send(world, make([]byte, computeSlots), peer, 3); err != nil {
			return err
		}
	}
}

// Without a handler a rank that computes answers nobody: the counterpart, in which rank 0's part comes to its
// end only when rank 1 calls.
var bodyComputesAlone = body("computes-alone", func(_ context.Context, world *mpi.Comm) error {
	large := make([]byte, computeLarge)
	if world.Rank() == 1 {
		received, err := mpi.Irecv(world, large, 0, 1)
		if err != nil {
			return err
		}
		if _, err := computeUntilFlag(); err != nil {
			return err
		}
		_, err = received.Wait()
		return err
	}
	sent, err := mpi.Issend(world, large, 1, 1)
	if err != nil {
		return err
	}
	for range 100 { // however long this takes: nothing can come of it
		_, done, err := sent.Test()
		if err != nil {
			return err
		}
		if done {
			return errors.New("the message was received by a rank that called nothing")
		}
		time.Sleep(100 * time.Microsecond)
	}
	if err := raiseFlag(""); err != nil {
		return err
	}
	_, err = sent.Wait()
	return err
})

// withHandlers is the environment of ranks that have a completion handler on a core that they may use.
func withHandlers(t *testing.T) []string {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	return []string{"WEFT_CQ_CORES=" + strconv.Itoa(cores[len(cores)-1]), "GOMAXPROCS=3"}
}

func flagFile(t *testing.T) string { return flagVariable + "=" + filepath.Join(t.TempDir(), "flag") }

func TestHandler_C1_E6_ARankThatComputesAnswersItsPeers(t *testing.T) {
	r := launch(t, 2, bodyComputes, append(withHandlers(t), flagFile(t))...)
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
}

func TestHandler_WithoutOneARankThatComputesAnswersNobody(t *testing.T) {
	r := launch(t, 2, bodyComputesAlone, flagFile(t), "WEFT_CQ_CORES=")
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
}

func TestHandler_N2_CoreThatIsNotThereIsRefusedByInit(t *testing.T) {
	r := launch(t, 1, bodyComputesAlone, "WEFT_CQ_CORES=8000", flagFile(t))
	require.Error(t, r.Failure)
	require.Contains(t, r.Err, "core 8000, which this process may not use")
	r = launch(t, 1, bodyComputesAlone, "WEFT_CQ_CORES=x", flagFile(t))
	require.Error(t, r.Failure)
	require.Contains(t, r.Err, `WEFT_CQ_CORES="x"`)
}
