package coll

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The executor gives each round of a schedule that pulls a number, at all ranks the same: a message that is
// sent in one round has to be received in that round.
func TestRoundsOfPullingAlgorithmsCorrespond(t *testing.T) {
	for o, a := range pulling {
		for _, x := range trials(o) {
			if !a.fits(x.call(0)) {
				continue
			}
			schedules := make([]Schedule, x.size)
			for rank := range schedules {
				a.build(&schedules[rank], x.call(rank))
			}
			messages := map[[3]int]int{} // by round, sender and receiver: sends less receives
			for rank := range schedules {
				s := &schedules[rank]
				require.True(t, s.Mailboxes && s.Pulls, "%v", x)
				if x.size > 1 {
					require.Equal(t, schedules[0].Rounds(), s.Rounds(), "%v: rank %d", x, rank)
				}
				for i := range s.Rounds() {
					for _, step := range s.Round(i) {
						switch step.Kind {
						case Send:
							messages[[3]int{i, rank, step.Peer}]++
						case Recv:
							messages[[3]int{i, step.Peer, rank}]--
						}
					}
				}
			}
			for at, n := range messages {
				require.Zero(t, n, "%v: round, sender, receiver %v", x, at)
			}
		}
	}
}

// What a rank has measured is its own: it changes no round, and no message.
func TestRoundsOfPullingAlgorithmsDoNotDependOnCosts(t *testing.T) {
	for o, a := range pulling {
		for _, n := range []int{9 << 10, 20 << 10, 100 << 10} {
			for size := 2; size < 5; size++ {
				var want []int // messages by round
				for _, stage := range []int{0, 1, 16 << 10, 1 << 30} {
					c := Call{Operation: o, Size: size, Count: n / 8, ElemSize: 8, Commutative: true,
						Mailbox: 4096, Pull: true, Stage: stage, StageByBoth: 2 * stage}
					var s Schedule
					a.build(&s, &c)
					var got []int
					for i := range s.Rounds() {
						got = append(got, Messages(s.Round(i)))
					}
					if want == nil {
						want = got
					}
					require.Equal(t, want, got, "%v, %d bytes, %d ranks, %v", o, n, size, stage)
				}
			}
		}
	}
}

// Four ranks on two processors use mailboxes or messages where a rank that pulls would have to wait for a turn of
// all others.
func TestChoicesOfRanksThatShareProcessors(t *testing.T) {
	for _, x := range []struct {
		o     Operation
		bytes int
		want  string
	}{
		{OpAllreduce, 1 << 10, directName}, {OpAllreduce, 2 << 10, doublingName},
		{OpAllreduce, 16 << 10, doublingName}, {OpAllreduce, 32 << 10, pullName},
		{OpAllgather, 16 << 10, directName}, {OpAllgather, 32 << 10, pullName},
		{OpAllgather, 128 << 10, directName},
		{OpAlltoall, 16 << 10, directName}, {OpAlltoall, 32 << 10, pullName},
		{OpAlltoall, 64 << 10, pullName}, {OpAlltoall, 128 << 10, "scattered"},
	} {
		c := Call{Operation: x.o, Size: 4, Count: x.bytes / 8, ElemSize: 8, Commutative: true, Fabric: Shared,
			Processors: 2, Mailbox: 22 << 10, Pull: true}
		var schedule Schedule
		name, _ := new(Selection).Build(&schedule, &c)
		assert.Equal(t, x.want, name, "%v of %d bytes", x.o, x.bytes)
		if name == pullName { // a block of an Alltoall is read once
			assert.Equal(t, x.o != OpAlltoall, schedule.Stages, "%v of %d bytes", x.o, x.bytes)
		}
		c.Mailbox = 432
		assert.Equal(t, x.bytes <= 16<<10, c.OutgrowsMailboxes(22<<10), "%v of %d bytes", x.o, x.bytes)
	}
}

func TestPullingIsChosenForLongVectors(t *testing.T) {
	var s Schedule
	for _, x := range []struct {
		bytes int
		pull  bool
		want  string
	}{{8, true, directName}, {64 << 10, true, pullName}, {64 << 10, false, "recursive-doubling"}} {
		c := Call{Operation: OpAllreduce, Size: 2, Count: x.bytes / 8, ElemSize: 8, Commutative: true,
			Mailbox: 4096, Pull: x.pull}
		name, _ := new(Selection).Build(&s, &c)
		assert.Equal(t, x.want, name)
	}
}
