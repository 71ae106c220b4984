package mpi_test

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

// lossy sends messages of 1 byte to 4 MiB at random from every rank to every other, in rounds, and checks
// every byte, until rank 0 is told to stop. After each round rank 0 tells what has become of the lanes of all
// ranks.
var lossy = body("lossy", func(_ context.Context, world *mpi.Comm) error {
	seed, err := strconv.ParseUint(os.Getenv("LOSSY_SEED"), 10, 64)
	if err != nil {
		return err
	}
	var stop atomic.Bool
	if world.Rank() == 0 {
		go func() {
			bufio.NewReader(os.Stdin).ReadString('\n')
			stop.Store(true)
		}()
	}
	for round := 0; ; round++ {
		if err := exchangeRound(world, seed, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		all, err := lanesOfAll(world)
		if err != nil {
			return err
		}
		last := []bool{stop.Load()}
		if world.Rank() == 0 {
			fmt.Println("round", round, all)
		}
		if err := mpi.Bcast(world, last, 0); err != nil {
			return err
		}
		if last[0] {
			break
		}
	}
	if world.Rank() == 0 {
		fmt.Println("ended")
	}
	return nil
})

// exchangeRound is one round: some messages from each rank to each other, posted at once. Whoever receives
// knows the sizes, since they follow from seed, round, source and destination.
func exchangeRound(world *mpi.Comm, seed uint64, round int) error {
	sizes := func(source, dest int) []int {
		rng := rand.New(rand.NewPCG(seed, uint64(round)<<32|uint64(source)<<16|uint64(dest)))
		list := make([]int, 1+rng.IntN(4))
		for i := range list {
			list[i] = int(math.Exp(rng.Float64() * math.Log(4<<20)))
		}
		return list
	}
	var open []mpi.Request
	var checks []func() error
	for peer := range world.Size() {
		if peer == world.Rank() {
			continue
		}
		for i, n := range sizes(world.Rank(), peer) {
			out := make([]byte, n)
			fill(out, world.Rank(), i, round)
			r, err := mpi.Isend(world, out, peer, i)
			if err != nil {
				return err
			}
			open = append(open, r)
		}
		for i, n := range sizes(peer, world.Rank()) {
			in := make([]byte, n)
			r, err := mpi.Irecv(world, in, peer, i)
			if err != nil {
				return err
			}
			open = append(open, r)
			checks = append(checks, func() error {
				want := make([]byte, n)
				fill(want, peer, i, round)
				for at := range want {
					if in[at] != want[at] {
						return fmt.Errorf("message %d of rank %d: byte %d of %d is %#x, not %#x", i, peer,
							at, n, in[at], want[at])
					}
				}
				return nil
			})
		}
	}
	err := mpi.Waitall(open)
	for _, check := range checks {
		if err == nil {
			err = check()
		}
	}
	return err
}

// laneSums are the counters of lanes, over all ranks and their peers.
type laneSums struct{ lanes, down, up, resent, dropped, closed int }

func (s laneSums) String() string {
	return fmt.Sprintf("lanes %d down %d up %d resent %d dropped %d closed %d", s.lanes, s.down, s.up,
		s.resent, s.dropped, s.closed)
}

func lanesOfAll(world *mpi.Comm) (laneSums, error) {
	sum := make([]int, 6)
	for _, c := range world.Stats().Channels {
		if c.Endpoint != world.Endpoint() {
			continue
		}
		l := c.Lanes
		for i, n := range []int{l.Lanes, int(l.Down), int(l.Up), int(l.Resent), int(l.Duplicates),
			int(l.HolesClosed)} {
			sum[i] += n
		}
	}
	all := make([]int, len(sum))
	err := mpi.Allreduce(world, sum, all, mpi.Sum[int]())
	return laneSums{all[0], all[1], all[2], all[3], all[4], all[5]}, err
}

// round waits for rank 0's next round, and gives what has become of the lanes.
func (j *processes) round() (s laneSums) {
	j.t.Helper()
	var number int
	_, err := fmt.Sscanf(j.says(0, "round "), "%d lanes %d down %d up %d resent %d dropped %d closed %d",
		&number, &s.lanes, &s.down, &s.up,
		&s.resent, &s.dropped, &s.closed)
	require.NoError(j.t, err)
	return s
}

// until waits for a round after which something is so.
func (j *processes) until(what string, so func(laneSums) bool) laneSums {
	j.t.Helper()
	var s laneSums
	for late := time.Now().Add(time.Minute); time.Now().Before(late); {
		if s = j.round(); so(s) {
			return s
		}
	}
	for rank, p := range j.ranks {
		j.t.Logf("standard error of rank %d:\n%s", rank, p.stderr())
	}
	j.t.Fatalf("after a minute still not: %s; there are %v", what, s)
	return s
}

// whole is how many lanes there are, counted at both ends, while none is missing. There can be more: an end
// that has none left dials one, too.
func whole(ranks, lanes int) int { return ranks * (ranks - 1) * lanes }

// TestLanes_H5_CutAtRandom: while ranks send each other messages at random, connections between them are cut
// in the middle of what they carry, one by one, two at a time, and all of a pair at once. Every byte is
// right, and each cut is told by both ends of its connection.
func TestLanes_H5_CutAtRandom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ranks, lanes, cuts int }{{2, 2, 6}, {3, 3, 6}, {2, 4, 6}} {
		t.Run(fmt.Sprintf("%d ranks, %d lanes", c.ranks, c.lanes), func(t *testing.T) {
			seed := uint64(c.ranks*10 + c.lanes)
			rng := rand.New(rand.NewPCG(seed, 0))
			g := newGates(t)
			j := beginAs(t, c.ranks, lossy, manner{via: g.before}, "WEFT_FABRIC=tcp",
				"WEFT_LANES="+strconv.Itoa(c.lanes),
				"LOSSY_SEED="+strconv.FormatUint(seed, 10))
			full := func(s laneSums) bool { return s.lanes >= whole(c.ranks, c.lanes) }
			j.until("all lanes are there", full)
			struck := 0
			for i := range c.cuts {
				struck += g.cut(rng, 1+i%3)
				j.until("both ends of each cut lane know",
					func(s laneSums) bool { return s.down >= 2*struck })
			}
			s := j.until("as many lanes as were cut are back", full)
			for s.resent == 0 { // a cut in the middle of a frame that counts
				struck += g.cut(rng, 1)
				s = j.until("both ends of each cut lane know",
					func(s laneSums) bool { return s.down >= 2*struck })
			}
			j.finish()
			t.Logf("%d connections cut: %v", struck, s)
		})
	}
}

// finish tells the ranks to stop, and waits for their end, which must be a good one.
func (j *processes) finish() {
	j.t.Helper()
	j.tell(0, "stop")
	j.says(0, "ended")
	j.ended()
}

// ended waits for the end of the ranks, which must be a good one.
func (j *processes) ended() {
	j.t.Helper()
	for rank, p := range j.ranks {
		for range p.lines {
		}
		require.NoError(j.t, p.cmd.Wait(), "rank %d: %s", rank, p.stderr())
	}
}

// TestLanes_F1_KilledRankEndsEveryCall: a rank that is killed takes all its lanes with it, and none can be
// made anew. That is known at once, and no timeout has a part in it.
func TestLanes_F1_KilledRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1h", "WEFT_FABRIC=tcp", "WEFT_LANES=3")
	j.strike(func() { j.signal(1, syscall.SIGKILL) })
}

// TestLanes_F2_StoppedRankEndsEveryCall: a rank that is stopped is silent on all its lanes, and lost when its
// time is over.
func TestLanes_F2_StoppedRankEndsEveryCall(t *testing.T) {
	t.Parallel()
	j := begin(t, 2, failing, "WEFT_PEER_TIMEOUT=1s", "WEFT_FABRIC=tcp", "WEFT_LANES=3")
	j.strike(func() {
		j.signal(1, syscall.SIGSTOP)
		j.stopped(1)
	})
	j.signal(1, syscall.SIGCONT)
	t.Log(j.says(1, "lost: "))
	j.says(1, "well")
}
