package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// strike is a call in which ranks die.
type strike struct {
	name string
	call func(c *mpi.Comm) error
}

// struck are the calls in which ranks die.
var struck = append([]strike{
	{"Barrier", mpi.Barrier},
	{"Bcast", func(c *mpi.Comm) error { return mpi.Bcast(c, large(), 0) }},
	{"Allreduce", func(c *mpi.Comm) error { return mpi.Allreduce(c, []int{1}, []int{0}, mpi.Sum[int]()) }},
	{"AllreduceLong", func(c *mpi.Comm) error { return mpi.Allreduce(c, large(), large(), mpi.Sum[int64]()) }},
	{"Iallreduce", func(c *mpi.Comm) error {
		return waited(mpi.Iallreduce(c, []int{1}, []int{0}, mpi.Sum[int]()))
	}},
	{"Alltoall", func(c *mpi.Comm) error { return mpi.Alltoall(c, make([]int, c.Size()), make([]int, c.Size())) }},
	{"Gather", func(c *mpi.Comm) error { return mpi.Gather(c, large(), make([]int64, c.Size()*many), 0) }},
	{"Dup", func(c *mpi.Comm) error {
		d, err := c.Dup()
		if err == nil {
			err = d.Free()
		}
		return err
	}},
	{"Split", func(c *mpi.Comm) error { return second(c.Split(c.Rank()%2, 0)) }},
	{"Ring", func(c *mpi.Comm) error {
		right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		return second(mpi.Sendrecv(c, []int{1}, right, 0, []int{0}, left, 0))
	}},
	{"AnySource", func(c *mpi.Comm) error {
		err := mpi.Send(c, []int{1}, (c.Rank()+1)%c.Size(), 0)
		return firstError(err, second(mpi.Recv(c, []int{0}, mpi.AnySource, 0)))
	}},
	{"Agree", func(c *mpi.Comm) error { return second(c.Agree(1)) }},
	{"Shrink", func(c *mpi.Comm) error {
		s, err := c.Shrink()
		if err == nil {
			err = errors.Join(mpi.Barrier(s), s.Free())
		}
		return err
	}},
	{"Iagree", func(c *mpi.Comm) error {
		flag := uint64(1)
		return waited(c.Iagree(&flag))
	}},
	{"Ishrink", func(c *mpi.Comm) error {
		var s *mpi.Comm
		err := waited(c.Ishrink(&s))
		if err == nil {
			err = errors.Join(mpi.Barrier(s), s.Free())
		}
		return err
	}},
}, struckEpochs...)

// TestSurvivors kills ranks in the middle of each of these calls. The survivors leave the call, shrink the
// communicator, and go on to the right result.
func TestSurvivors(t *testing.T) {
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("SURVIVE_ROUNDS")); err == nil {
		rounds = n
	}
	onFabrics(t, func(t *testing.T, fabric string) {
		for round := range rounds {
			for i, s := range struck {
				victims := []string{fmt.Sprint((round + i) % 5)}
				if i%3 == 2 {
					victims = append(victims, fmt.Sprint((round+2*i+1)%5))
				}
				t.Run(s.name+"/"+strings.Join(victims, ","), func(t *testing.T) {
					survive(t, s.name, victims, uint64(round), fabric)
				})
			}
		}
	})
}

func survive(t *testing.T, call string, victims []string, seed uint64, env ...string) {
	env = append(env, "SURVIVE_CALL="+call, "SURVIVE_VICTIMS="+strings.Join(victims, ","),
		fmt.Sprint("SURVIVE_SEED=", seed))
	r := launchertest.RunSurviving(t, launchertest.Ranks(5, survives, env...))
	f := r.Cause(t)
	require.Equal(t, launcher.RanksLost, f.How, "%v\n%s", f, r.Err)
	require.Equal(t, 3, f.ExitStatus())
	dead := map[string]bool{}
	for _, v := range victims {
		dead[v] = true
	}
	require.Equal(t, 5-len(dead), strings.Count(r.Out, fmt.Sprintf("went on with %d", 5-len(dead))), "%s\n%s",
		r.Out, r.Err)
	for v := range dead {
		require.Contains(t, r.Err, "rank "+v+" on ")
	}
	require.Contains(t, r.Err, fmt.Sprintf("without %d of its 5 ranks", len(dead)))
}

var survives = body("survives", func(_ context.Context, world *mpi.Comm) error {
	call := struck[0].call
	for _, s := range struck {
		if s.name == os.Getenv("SURVIVE_CALL") {
			call = s.call
		}
	}
	victims := map[string]bool{}
	for _, v := range strings.Split(os.Getenv("SURVIVE_VICTIMS"), ",") {
		victims[v] = true
	}
	seed, err := strconv.ParseUint(os.Getenv("SURVIVE_SEED"), 10, 64)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, uint64(world.Rank())))
	if victims[fmt.Sprint(world.Rank())] {
		time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, func() {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
	}
	c := world
	for done := 0; done < 200 || c.Size() > world.Size()-len(victims); {
		err := call(c)
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("%s: %w", os.Getenv("SURVIVE_CALL"), err)
		}
		well := uint64(1)
		if err != nil {
			well = 0
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		if well, err = c.Agree(well); err == nil && well == 1 {
			done++
			continue
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		smaller, err := c.Shrink()
		if err != nil {
			return err
		}
		if c != world {
			if err := c.Free(); err != nil {
				return err
			}
		}
		c = smaller
	}
	sum := []int{0}
	if err := mpi.Allreduce(c, []int{1 << world.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	for rank := range world.Size() {
		if sum[0]>>rank&1 == 1 == victims[fmt.Sprint(rank)] {
			return fmt.Errorf("the ranks add up to %b", sum[0])
		}
	}
	fmt.Println("went on with", c.Size())
	return nil
})

// A receive from any source says that a rank has failed until that is acknowledged.
func TestAckFailed(t *testing.T) {
	r := launchertest.RunSurviving(t, launchertest.Ranks(3, acknowledges))
	require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s", r.Err)
	require.Contains(t, r.Out, "as it should be")
}

var acknowledges = body("acknowledges", func(_ context.Context, world *mpi.Comm) error {
	switch world.Rank() {
	case 2:
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case 1:
		for len(world.Failed()) == 0 {
			time.Sleep(time.Millisecond)
		}
		return mpi.Send(world, []int{7}, 0, 1)
	}
	for range 2 {
		_, err := mpi.Recv(world, []int{0}, mpi.AnySource, 0)
		if err := wantError("Recv from any source", err, mpi.ErrProcFailed); err != nil {
			return err
		}
	}
	if f := world.Failed(); len(f) != 1 || f[0] != 2 {
		return fmt.Errorf("failed: %v", f)
	}
	if err := world.AckFailed(); err != nil {
		return err
	}
	got := []int{0}
	if _, err := mpi.Recv(world, got, mpi.AnySource, 1); err != nil {
		return err
	}
	fmt.Println("as it should be", got[0])
	return nil
})

// Revoke ends collectives that go through mailboxes, and those that read the memory of other ranks, at
// whatever point they are.
func TestRevoke_EndsCollectivesInSharedMemory(t *testing.T) {
	ranks(t, 3, revokedCollectives, "WEFT_FABRIC=shm")
}

var revokedCollectives = body("revoked collectives", func(ctx context.Context, world *mpi.Comm) error {
	for round := range 12 {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		for range 12 { // mailboxes are there after a few calls
			if err := mpi.Barrier(c); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(world); err != nil { // all have come out of them
			return err
		}
		data := make([]int64, []int{4, 200_000}[round%2])
		if c.Rank() == 2 {
			if round%4 > 1 { // in the middle of it
				short, cancel := context.WithTimeout(ctx, time.Duration(round)*200*time.Microsecond)
				err := mpi.Allreduce(c.WithContext(short), mpi.InPlace[int64](), data, mpi.Sum[int64]())
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
			}
			if err := c.Revoke(); err != nil {
				return err
			}
		} else {
			err := mpi.Allreduce(c, mpi.InPlace[int64](), data, mpi.Sum[int64]())
			for err == nil { // others of them take part in it, or it was over before
				err = mpi.Allreduce(c, mpi.InPlace[int64](), data, mpi.Sum[int64]())
			}
			if err := wantError("Allreduce", err, mpi.ErrRevoked); err != nil {
				return err
			}
		}
		if err := firstError(c.Free(), mpi.Barrier(world)); err != nil {
			return err
		}
	}
	return nil
})

// Revoke frees ranks from calls whose partners have left.
func TestRevoke(t *testing.T) {
	onFabrics(t, func(t *testing.T, fabric string) { ranks(t, 3, revokes, fabric) })
}

var revokes = body("revokes", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		if err := c.Revoke(); err != nil {
			return err
		}
	} else {
		r, err := mpi.Irecv(c, []int{0}, 0, 3)
		if err != nil && !errors.Is(err, mpi.ErrRevoked) {
			return err
		}
		if err == nil {
			_, err = r.Wait()
		}
		if err := wantError("Irecv", err, mpi.ErrRevoked); err != nil {
			return err
		}
		if err := wantError("Barrier", mpi.Barrier(c), mpi.ErrRevoked); err != nil {
			return err
		}
	}
	if err := wantError("Send", mpi.Send(c, []int{1}, 1, 0), mpi.ErrRevoked); err != nil {
		return err
	}
	flag, err := c.Agree(^uint64(1 << c.Rank()))
	if err := firstError(err, want("Agree", flag, ^uint64(7))); err != nil {
		return err
	}
	s, err := c.Shrink()
	if err != nil {
		return err
	}
	return firstError(want("size", s.Size(), 3), mpi.Barrier(s), c.Free(), s.Free(), mpi.Barrier(world))
})
