package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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

// strike is a call in which ranks die. It checks its result: n counts the calls on the communicator.
type strike struct {
	name string
	call func(c *mpi.Comm, n int64) error
}

// struckMessages are sends and receives in which ranks die.
var struckMessages = []strike{
	{"Ring", sendRing(1)},
	{"RingLong", sendRing(many)}, // the sender waits for the receiver
	{"Ssend", func(c *mpi.Comm, n int64) error {
		got := make([]int64, 1)
		r, err := mpi.Irecv(c, got, (c.Rank()+c.Size()-1)%c.Size(), 0)
		if err != nil {
			return err
		}
		err = mpi.Ssend(c, contribution(c.Rank(), n, 1), neighbor(c), 0)
		return fromRingNeighbor(c, n, got, firstError(second(r.Wait()), err))
	}},
	{"SendrecvReplace", func(c *mpi.Comm, n int64) error {
		buf := contribution(c.Rank(), n, lengthIn(n))
		left := (c.Rank() + c.Size() - 1) % c.Size()
		return fromRingNeighbor(c, n, buf, second(mpi.SendrecvReplace(c, buf, neighbor(c), 0, left, 0)))
	}},
	{"ValueMessages", func(c *mpi.Comm, n int64) error {
		left := (c.Rank() + c.Size() - 1) % c.Size()
		out := contribution(c.Rank(), n, lengthIn(n))
		if n%2 == 0 {
			got, _, err := mpi.SendrecvValue(c, out, neighbor(c), 0, left, 0)
			return fromRingNeighbor(c, n, got, err)
		}
		r, err := mpi.IrecvValue[[]int64](c, left, 0)
		if err != nil {
			return err
		}
		s, err := mpi.IsendValue(c, out, neighbor(c), 0)
		if err != nil {
			err = errors.Join(err, c.Revoke())
		} else {
			err = second(s.Wait())
		}
		got, _, err2 := r.Wait()
		return fromRingNeighbor(c, n, got, errors.Join(err, err2))
	}},
	{"RecvSlice", func(c *mpi.Comm, n int64) error {
		p, err := mpi.SsendInit(c, contribution(c.Rank(), n, lengthIn(n)), neighbor(c), 0)
		if err != nil {
			return err
		}
		s, err := p.Start()
		if err != nil {
			return errors.Join(err, p.Free())
		}
		got, _, err := mpi.RecvSlice[int64](c, (c.Rank()+c.Size()-1)%c.Size(), 0)
		if err != nil {
			err = errors.Join(err, c.Revoke()) // the rank after may never receive
		}
		for done := false; !done && err == nil; {
			_, done, err = mpi.RequestStatus(s)
		}
		return fromRingNeighbor(c, n, got, errors.Join(err, second(s.Wait()), p.Free()))
	}},
	{"Partitioned", func(c *mpi.Comm, n int64) error {
		got := make([]int64, 6*lengthIn(n))
		r, err := mpi.PrecvInit(c, got, 2, (c.Rank()+c.Size()-1)%c.Size(), 0)
		if err != nil {
			return err
		}
		s, err := mpi.PsendInit(c, contribution(c.Rank(), n, len(got)), 3, neighbor(c), 0)
		if err == nil {
			err = firstError(r.Start(), s.Start())
		}
		if err != nil {
			return errors.Join(err, c.Revoke(), second(r.Wait()), r.Free())
		}
		err = s.PreadyRange(0, 3)
		if sent := second(s.Wait()); err == nil {
			err = sent
		}
		if err != nil {
			err = errors.Join(err, c.Revoke()) // or the rank before would wait
		}
		err = errors.Join(err, second(r.Wait()))
		return fromRingNeighbor(c, n, got, errors.Join(err, s.Free(), r.Free()))
	}},
	{"AnySource", func(c *mpi.Comm, n int64) error {
		got := make([]int64, 1)
		err := mpi.Send(c, contribution(c.Rank(), n, 1), neighbor(c), int(n))
		return fromRingNeighbor(c, n, got, firstError(err, second(mpi.Recv(c, got, mpi.AnySource, int(n)))))
	}},
	{"Probe", func(c *mpi.Comm, n int64) error {
		long := contribution(c.Rank(), n, lengthIn(n))
		r, err := mpi.Isend(c, long, neighbor(c), int(n))
		if err != nil {
			return err
		}
		m, st, err := mpi.Mprobe(c, mpi.AnySource, int(n))
		if err != nil {
			// the buffer is free again when the send has ended, too
			return errors.Join(err, c.Revoke(), second(r.Wait()))
		}
		got := make([]int64, st.Bytes()/8)
		err = second(mpi.Mrecv(&m, got))
		return fromRingNeighbor(c, n, got, errors.Join(err, second(r.Wait())))
	}},
	{"All", func(c *mpi.Comm, n int64) error {
		length := lengthIn(n)
		var rs []mpi.Request
		got := make([][]int64, c.Size())
		var err error
		for r := range c.Size() {
			got[r] = make([]int64, length)
			var in, out mpi.Request
			if in, err = mpi.Irecv(c, got[r], r, 3); err == nil {
				rs = append(rs, in)
				out, err = mpi.Isend(c, contribution(c.Rank(), n, length), r, 3)
			}
			if err != nil {
				err = errors.Join(err, c.Revoke())
				break
			}
			rs = append(rs, out)
		}
		if err = errors.Join(mpi.Waitall(rs), err); err != nil {
			return err
		}
		for r := range c.Size() {
			if err := right("Irecv", got[r], nil, func(i int) int64 { return of(r, n, i) }); err != nil {
				return err
			}
		}
		return nil
	}},
}

// sendRing has every rank send to the next.
func sendRing(length int) func(c *mpi.Comm, n int64) error {
	return func(c *mpi.Comm, n int64) error {
		got := make([]int64, length)
		left := (c.Rank() + c.Size() - 1) % c.Size()
		err := second(mpi.Sendrecv(c, contribution(c.Rank(), n, length), neighbor(c), 0, got, left, 0))
		return fromRingNeighbor(c, n, got, err)
	}
}

func fromRingNeighbor(c *mpi.Comm, n int64, got []int64, err error) error {
	left := (c.Rank() + c.Size() - 1) % c.Size()
	return right("the receive", got, err, func(i int) int64 { return of(left, n, i) })
}

// struck are all calls in which ranks die.
var struck = slices.Concat(struckCollectives, struckCreations, struckAgreements, struckMessages, struckEpochs)

func hasStrike(list []strike, name string) bool {
	return slices.ContainsFunc(list, func(s strike) bool { return s.name == name })
}

// TestSurvivors kills ranks in the middle of each of these calls. The survivors leave the call, shrink the
// communicator, and go on to the right result. With SURVIVE_ROUNDS that is done so often, from round
// SURVIVE_FROM on, on both fabrics: each of five ranks has its turn in five rounds.
func TestSurvivors(t *testing.T) {
	t.Parallel()
	from, rounds, all := 0, 1, false
	if text := os.Getenv("SURVIVE_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
		from, _ = strconv.Atoi(os.Getenv("SURVIVE_FROM"))
		all = true
	}
	names := map[string]bool{}
	for _, s := range struck {
		require.False(t, names[s.name], "%s is there twice", s.name)
		names[s.name] = true
	}
	onFabrics(t, func(t *testing.T, fabric string) {
		for round := from; round < from+rounds; round++ {
			for i, s := range struck {
				if !all && (i%2 == 0) == (fabric == "WEFT_FABRIC=shm") {
					continue
				}
				two := i%3 == 2
				n := 5
				if !all {
					n = 3 + boolInt(two)
				}
				victims := []string{fmt.Sprint((round + i) % n)}
				if two {
					victims = append(victims, fmt.Sprint((round+2*i+1)%n))
				}
				t.Run(s.name+"/"+strings.Join(victims, ","), func(t *testing.T) {
					survive(t, n, s.name, victims, uint64(round), fabric)
				})
			}
		}
	})
}

// All ranks but one die, one after another or at once.
func TestSurvivors_OneIsLeft(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		for seed, call := range []string{"AllreduceShort", "Shrink", "RingLong", "WinFence"} {
			t.Run(call, func(t *testing.T) {
				survive(t, 4, call, strings.Split([]string{"0,1,2", "1,2,3"}[seed%2], ","), uint64(seed), fabric)
			})
		}
	})
}

// The steps of agreements fit the smallest slots.
func TestSurvivors_SmallestSlots(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		survive(t, 3, "Shrink", []string{"1"}, 1, fabric, "WEFT_PHASES=100")
	})
}

func survive(t *testing.T, n int, call string, victims []string, seed uint64, env ...string) {
	env = append(env, "SURVIVE_CALL="+call, "SURVIVE_VICTIMS="+strings.Join(victims, ","),
		fmt.Sprint("SURVIVE_SEED=", seed))
	r := launchertest.RunSurviving(t, launchertest.Ranks(n, survives, env...))
	f := r.Cause(t)
	require.Equal(t, launcher.RanksLost, f.How, "%v\n%s", f, r.Err)
	require.Equal(t, 3, f.ExitStatus())
	dead := victimsOf(strings.Join(victims, ","))
	require.Equal(t, n-len(dead), strings.Count(r.Out, fmt.Sprintf("went on with %d\n", n-len(dead))), "%s\n%s",
		r.Out, r.Err)
	for v := range dead {
		require.Contains(t, r.Err, fmt.Sprintf("rank %d on ", v))
	}
	require.Contains(t, r.Err, fmt.Sprintf("without %d of its %d ranks", len(dead), n))
}

// victimsOf reads ranks with commas between them.
func victimsOf(text string) map[int]bool {
	victims := map[int]bool{}
	for _, v := range strings.Split(text, ",") {
		if rank, err := strconv.Atoi(v); err == nil {
			victims[rank] = true
		}
	}
	return victims
}

// This tells other packages' tests which calls there are.
var _ = launchertest.Body("struck calls", func() error {
	for _, s := range struck {
		fmt.Println(s.name)
	}
	return nil
})

// survives calls SURVIVE_CALL again and again, while the ranks of SURVIVE_VICTIMS kill themselves.
var survives = body("survives", func(_ context.Context, world *mpi.Comm) error {
	name := os.Getenv("SURVIVE_CALL")
	at := slices.IndexFunc(struck, func(s strike) bool { return s.name == name })
	if at < 0 {
		return fmt.Errorf("no call %q", name)
	}
	victims := victimsOf(os.Getenv("SURVIVE_VICTIMS"))
	seed, err := strconv.ParseUint(os.Getenv("SURVIVE_SEED"), 10, 64)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, uint64(world.Rank())))
	pid := os.Getpid()
	if os.Getenv("SURVIVE_STRIKE") == "agent" { // which ends the ranks of its host
		pid = os.Getppid()
	}
	if victims[world.Rank()] {
		// while connections are made, or later
		within := []int{3000, 30_000}[seed%2]
		after(time.Duration(rng.IntN(within))*time.Microsecond, func() {
			syscall.Kill(pid, syscall.SIGKILL)
		})
	}
	// Some calls end everywhere by themselves, but not CreateGroup, which concerns a part of the ranks.
	// Agreements are to be called alike, and so come one at a time.
	revokes := seed%3 != 0 || name == "CreateGroup" || hasStrike(struckMessages, name) ||
		hasStrike(struckEpochs, name)
	repeats := 4
	if hasStrike(struckAgreements, name) {
		repeats = 1
	}
	c, n := world, int64(0)
	for done := 0; done < 2 || c.Size() > world.Size()-len(victims); {
		var err error
		for k := 0; k < repeats && err == nil; k++ {
			err = struck[at].call(c, n)
			n++
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("%s: %w", name, err)
		}
		well := uint64(1)
		if err != nil {
			well = 0
			if revokes {
				if err := c.Revoke(); err != nil {
					return err
				}
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
		c, n, done = smaller, 0, 0
	}
	sum := []int{0}
	if err := mpi.Allreduce(c, []int{1 << world.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	for rank := range world.Size() {
		if sum[0]>>rank&1 == 1 == victims[rank] {
			return fmt.Errorf("the ranks add up to %b", sum[0])
		}
	}
	fmt.Println("went on with", c.Size())
	return nil
})

// Messages that a rank sent before its end are received after its failure is known, and a send that it received
// succeeds.
func TestLastMessages(t *testing.T) {
	t.Parallel()
	onFabrics(t, func(t *testing.T, fabric string) {
		r := launchertest.RunSurviving(t, launchertest.Ranks(2, sendsAndEnds, fabric))
		require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s", r.Err)
		require.Contains(t, r.Out, "as it should be")
	})
}

var sendsAndEnds = body("sends and ends", func(_ context.Context, world *mpi.Comm) error {
	long := make([]byte, 1<<20)
	if world.Rank() == 1 {
		for n := range 3 {
			if err := mpi.Send(world, []int{n}, 0, 0); err != nil {
				return err
			}
		}
		if _, err := mpi.Recv(world, long, 0, 1); err != nil {
			return err
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	sent, err := mpi.Issend(world, long, 1, 1)
	if err != nil {
		return err
	}
	for len(world.Failed()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := sent.Wait(); err != nil {
		return err
	}
	got := []int{-1}
	for n := range 3 {
		_, err := mpi.Recv(world, got, 1, 0)
		if err := firstError(err, want("message", got[0], n)); err != nil {
			return err
		}
	}
	_, err = mpi.Recv(world, got, 1, 0)
	if err := wantError("Recv from a rank that has ended", err, mpi.ErrProcFailed); err != nil {
		return err
	}
	fmt.Println("as it should be")
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
	together(t, 3, revokedCollectives, "WEFT_FABRIC=shm")
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
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, revokes, fabric) })
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
