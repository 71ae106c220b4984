package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// agreeingRanks lose two of them at a time, until two are left.
const agreeingRanks = 12

// All who return from an agreement return the same, those who die right afterwards too: ranks agree again and
// again while pairs of them die, ten in all, and write down what they get. SURVIVE_AGREEMENTS is the number of
// such jobs, each with five pairs.
func TestAgree_PairsDie(t *testing.T) {
	jobs := 1
	if text := os.Getenv("SURVIVE_AGREEMENTS"); text != "" {
		var err error
		jobs, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	pairs, agreements := 0, 0
	for job := range jobs {
		fabric := []string{"shm", "tcp"}[job%2]
		dir := t.TempDir()
		r := launchertest.RunSurviving(t, launchertest.Ranks(agreeingRanks, agreesWhilePairsDie,
			"WEFT_FABRIC="+fabric, "SURVIVE_LOG="+dir, fmt.Sprint("SURVIVE_SEED=", job)))
		require.Equal(t, launcher.RanksLost, r.Cause(t).How, "job %d: %s%s", job, r.Out, r.Err)
		require.Equal(t, 2, strings.Count(r.Out, "2 are left\n"), "job %d: %s%s", job, r.Out, r.Err)
		results := map[string]string{} // by agreement
		for rank := range agreeingRanks {
			text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank)))
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				agreement, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
				if earlier, ok := results[agreement]; ok {
					require.Equal(t, earlier, result, "job %d, agreement %s, rank %d", job, agreement, rank)
				}
				results[agreement] = result
			}
		}
		pairs, agreements = pairs+(agreeingRanks-2)/2, agreements+len(results)
	}
	t.Logf("%d jobs, %d times two deaths, %d agreements", jobs, pairs, agreements)
}

var agreesWhilePairsDie = body("agrees while pairs die", func(_ context.Context, world *mpi.Comm) error {
	seed, err := strconv.ParseUint(os.Getenv("SURVIVE_SEED"), 10, 64)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(os.Getenv("SURVIVE_LOG"), strconv.Itoa(world.Rank())))
	if err != nil {
		return err
	}
	defer log.Close()
	shared := rand.New(rand.NewPCG(seed, 0)) // the same everywhere
	own := rand.New(rand.NewPCG(seed, 1+uint64(world.Rank())))
	c, shrinks := world, 0
	for c.Size() > 2 {
		first, second := shared.IntN(c.Size()), shared.IntN(c.Size()-1)
		if second >= first {
			second++
		}
		at := [2]time.Duration{time.Duration(shared.IntN(3000)), time.Duration(shared.IntN(3000))}
		if shared.IntN(2) == 0 {
			at[1] = at[0] + time.Duration(shared.IntN(100)) // within one agreement
		}
		for i, victim := range [2]int{first, second} {
			if c.Rank() == victim {
				after(at[i]*time.Microsecond, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
			}
		}
		for k, target := 0, c.Size()-2; c.Size() > target; k++ {
			flag, err := c.Agree(own.Uint64() | own.Uint64())
			if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
			fmt.Fprintf(log, "%d.%d.%d: %x %t\n", c.Size(), shrinks, k, flag, err == nil)
			if err == nil {
				continue
			}
			smaller, err := c.Shrink()
			if err != nil {
				return err
			}
			fmt.Fprintf(log, "%d.%d.%d, Shrink: %d %v\n", c.Size(), shrinks, k, smaller.Size(), worldRanks(smaller, world))
			c, shrinks = smaller, shrinks+1
		}
	}
	fmt.Println(c.Size(), "are left")
	return nil
})

func worldRanks(c, world *mpi.Comm) []int {
	all := make([]int, c.Size())
	for i := range all {
		all[i] = i
	}
	return c.Group().Translate(all, world.Group())
}
