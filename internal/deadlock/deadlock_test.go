package deadlock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/snapshot"
)

// jobOf makes a job of ranks that are given what they wait in.
func jobOf(waits ...[]snapshot.Wait) Job {
	j := make(Job, len(waits))
	for rank, w := range waits {
		j[rank] = &snapshot.Rank{Rank: rank, Size: len(waits), Phase: snapshot.Running, Waits: w,
			Comms: []snapshot.Comm{{ID: 0, Name: "world"}}}
	}
	return j
}

func recv(from, tag, line int) []snapshot.Wait {
	return []snapshot.Wait{{Call: "Recv", Site: fmt.Sprintf("solver.go:%d", line),
		Ops: []snapshot.Op{{Kind: snapshot.Recv, Peer: from, Tag: tag}}}}
}

func lock(of int) []snapshot.Wait {
	return []snapshot.Wait{{Call: "Lock", Ops: []snapshot.Op{{Kind: snapshot.Lock, Peer: of}}}}
}

// held has a rank hold the lock of its own part.
func held(by int, j Job) Job {
	j[by].Locks = []snapshot.Held{{Peer: by}}
	return j
}

func ssend(to, tag, line int) []snapshot.Wait {
	return []snapshot.Wait{{Call: "Ssend", Site: fmt.Sprintf("solver.go:%d", line),
		Ops: []snapshot.Op{{Kind: snapshot.Send, Peer: to, Tag: tag}}}}
}

func collective(name string, number uint64, needs ...int) []snapshot.Wait {
	return []snapshot.Wait{{Call: name, Site: "solver.go:9",
		Ops: []snapshot.Op{{Kind: snapshot.Collective, Name: name, Number: number, Needs: needs}}}}
}

// lying adds messages to a rank that no receive has taken.
func (j Job) lying(rank int, m ...snapshot.Message) Job {
	j[rank].Unexpected = append(j[rank].Unexpected, m...)
	return j
}

func (j Job) begun(counts ...uint64) Job {
	for rank, n := range counts {
		j[rank].Comms[0].Begun = n
	}
	return j
}

// What may act without a goroutine that shows it is not stuck, and the report says how.
func TestStuck_NotWhatMayActLater(t *testing.T) {
	j := jobOf(recv(1, 5, 41), recv(0, 6, 41), recv(2, 1, 41))
	require.Equal(t, []int{0, 1, 2}, j.Stuck())
	j[0].Leaving = true
	require.Equal(t, []int{2}, j.Stuck())
	j[0].Leaving, j[1].Later = false, "calls time.AfterFunc at solver.go:30"
	require.Equal(t, []int{2}, j.Stuck())
	require.Contains(t, j.Report(),
		"  rank 1 may still act: the program calls time.AfterFunc at solver.go:30")
	j[1].Active = 1
	require.NotContains(t, strings.Join(j.Report(), "\n"), "may still act")
}

func TestStuck(t *testing.T) {
	bounded := recv(1, 5, 41)
	bounded[0].Bounded = true
	either := recv(1, 5, 41)
	either[0].Ops = append(either[0].Ops, snapshot.Op{Kind: snapshot.Recv, Peer: 2, Tag: 5})
	active := jobOf(recv(1, 5, 41), recv(0, 6, 41))
	active[1].Active = 1
	leftOut := jobOf(recv(1, 5, 41), recv(0, 6, 41))
	leftOut[1].MoreWaits = 1
	unknown := jobOf(recv(1, 5, 41), nil)
	unknown[1] = nil
	finished := jobOf(recv(1, 5, 41), nil)
	finished[1].Phase = snapshot.Finished
	finalizing := jobOf(recv(1, 5, 41), collective(snapshot.Finalize, 0))
	finalizing[1].Phase = snapshot.Finalizing
	from0, from1 := snapshot.Message{From: 0, Tag: 5}, snapshot.Message{From: 1, Tag: 6}
	moving := jobOf(recv(1, 5, 41), recv(0, 6, 41))
	moving[1].Waits[0].Ops[0].Moving = true
	for name, c := range map[string]struct {
		job  Job
		want []int
	}{
		"two receive from each other":           {jobOf(recv(1, 5, 41), recv(0, 6, 41)), []int{0, 1}},
		"three in a ring":                       {jobOf(recv(1, 5, 1), recv(2, 5, 2), recv(0, 5, 3)), []int{0, 1, 2}},
		"two send to each other":                {jobOf(ssend(1, 5, 41), ssend(0, 6, 41)).lying(0, from1).lying(1, from0), []int{0, 1}},
		"a send that has been taken":            {jobOf(ssend(1, 5, 41), ssend(0, 6, 41)).lying(0, from1), nil},
		"one behind a cycle":                    {jobOf(recv(1, 5, 1), recv(0, 5, 2), recv(0, 5, 3)), []int{0, 1, 2}},
		"from itself":                           {jobOf(recv(0, 5, 1)), []int{0}},
		"a lock, and who has it waits":          {held(1, jobOf(lock(1), recv(0, 5, 2))), []int{0, 1}},
		"a lock that is being passed on":        {jobOf(lock(1), recv(0, 5, 2)), nil},
		"a lock, and another computes":          {held(1, jobOf(lock(1), recv(0, 5, 2), nil)), nil},
		"for one that computes":                 {jobOf(recv(1, 5, 41), nil), nil},
		"another goroutine may act":             {active, nil},
		"a wait that is not listed":             {leftOut, nil},
		"an end of its own":                     {jobOf(bounded, recv(0, 6, 41)), nil},
		"one of two may act":                    {jobOf(either, recv(0, 6, 41), nil), nil},
		"any source, one computes":              {jobOf(recv(snapshot.Any, 5, 1), recv(0, 5, 2), nil), nil},
		"any source, all wait":                  {jobOf(recv(snapshot.Any, 5, 1), recv(0, 5, 2)), []int{0, 1}},
		"no answer":                             {unknown, nil},
		"from one that has finished":            {finished, []int{0}},
		"from one in Finalize":                  {finalizing, []int{0, 1}},
		"bytes on their way":                    {moving, nil},
		"a collective under way":                {jobOf(collective("Bcast", 1), collective("Bcast", 1)).begun(1, 1), nil},
		"a collective, one still comes":         {jobOf(collective("Bcast", 1), nil).begun(1, 0), nil},
		"a collective against a receive":        {jobOf(collective("Bcast", 1, 1), recv(0, 1, 1)).begun(1, 0), []int{0, 1}},
		"a collective, and one that has passed": {jobOf(collective("Bcast", 1), recv(0, 1, 1)).begun(1, 1), nil},
	} {
		require.Equal(t, c.want, c.job.Stuck(), name)
	}
}

// Whatever keeps one stuck rank from being stuck adds none.
func TestStuck_GrowsWithNothingThatMayAct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "ranks")
		j := jobOf(make([][]snapshot.Wait, n)...)
		for rank := range j {
			for range rapid.IntRange(0, 2).Draw(t, "waits") {
				w := snapshot.Wait{Call: "Waitany"}
				for range rapid.IntRange(1, 3).Draw(t, "ops") {
					w.Ops = append(w.Ops, snapshot.Op{Kind: snapshot.Recv,
						Peer: rapid.IntRange(-1, n-1).Draw(t, "peer")})
				}
				j[rank].Waits = append(j[rank].Waits, w)
			}
		}
		before := j.Stuck()
		for _, line := range j.Report() {
			require.NotContains(t, line, "%!")
		}
		if len(before) == 0 {
			return
		}
		freed := rapid.SampledFrom(before).Draw(t, "freed")
		j[freed].Active = 1
		after := j.Stuck()
		require.NotContains(t, after, freed)
		require.Subset(t, before, after)
	})
}

func TestReport_NamesTheCycle(t *testing.T) {
	j := jobOf(recv(1, 5, 41), recv(0, 6, 41), collective("Barrier", 3, 1)).begun(2, 2, 3)
	j[0].Unexpected = []snapshot.Message{{From: 1, Tag: 6, Bytes: 8}}
	j[2].Waits[0].Since = 12 * time.Second
	require.Equal(t, strings.TrimPrefix(`
  rank 0: Recv from 1, tag 5, at solver.go:41
  rank 1: Recv from 0, tag 6, at solver.go:41
  rank 2: Barrier on world, at solver.go:9, for 12s
  rank 0 waits in Recv from 1, tag 5, at solver.go:41; rank 1 waits in Recv from 0, tag 6, at solver.go:41: neither can go on
  rank 0: a message from 1 with tag 6 has come; the receive asks for tag 5
  ranks 0-1 have not called Barrier on world, which other ranks wait in: rank 0 waits in Recv from 1, tag 5, at solver.go:41`,
		"\n"), strings.Join(j.Report(), "\n"))
}

// A rank may wait for a message that is under way, or lost with the network: that is no deadlock.
func TestReport_AMessageUnderWay(t *testing.T) {
	j := jobOf(recv(1, 5, 41), recv(0, 6, 41))
	j[0].Channels = []snapshot.Channel{{Peer: 1, Sent: 3, Received: 2}}
	j[1].Channels = []snapshot.Channel{{Peer: 0, Sent: 2, Received: 2}}
	require.Equal(t, "  rank 0 waits in Recv from 1, tag 5, at solver.go:41; rank 1 waits in Recv from 0, tag 6, at "+
		"solver.go:41: messages between them are under way, or the network has lost them", j.Report()[2])
}

func TestReport_FewestFirst(t *testing.T) {
	j := jobOf(collective("Allreduce", 1), collective("Allreduce", 1), nil, collective("Allreduce", 1)).begun(1, 1, 0, 1)
	j[2].At = "solver.go:70"
	require.Equal(t, []string{
		"  rank 2: in no call of weft, at solver.go:70",
		"  ranks 0-1,3: Allreduce on world, at solver.go:9",
		"  rank 2 has not called Allreduce on world, which other ranks wait in: rank 2 is in no call of weft, " +
			"at solver.go:70",
	}, j.Report())
	j[2].Call = "Barrier"
	require.Contains(t, j.Report(), "  rank 2: in Barrier, at solver.go:70")
}

func TestReport_APeerThatIsGone(t *testing.T) {
	j := jobOf(recv(1, 5, 41), nil, nil)
	j[1].Phase = snapshot.Finished
	j[2] = nil
	require.Equal(t, []string{
		"  rank 0: Recv from 1, tag 5, at solver.go:41",
		"  rank 1: finished",
		"  rank 2: no answer",
		"  rank 0 waits in Recv from 1, tag 5, at solver.go:41: rank 1 has finished and sends no more",
	}, j.Report())
}

// Ranks that called different collectives in the same place are named, and where all called the same one, their
// arguments differ. Seen to fail without unlikeText.
func TestReport_UnlikeCollectives(t *testing.T) {
	const different, arguments = "different collectives", "arguments differ"
	bcast := collective("Bcast", 3, 0)
	bcast[0].Site = "solver.go:12"
	j := jobOf(collective("Barrier", 3, 1), bcast, bcast).begun(3, 3, 3)
	require.Contains(t, j.Report(), "  different collectives on world: rank 0 called Barrier, at solver.go:9, ranks 1-2 "+
		"called Bcast, at solver.go:12; all ranks of a communicator must call its collectives in the same order")
	root := collective("Bcast", 3, 1)
	require.Contains(t, jobOf(root, bcast, bcast).begun(3, 3, 3).Report(), "  all ranks of world wait in the same "+
		"Bcast, so their arguments differ, such as the root or the length; WEFT_CHECK=1 says which")
	behind := jobOf(collective("Barrier", 4, 1), bcast, bcast).begun(4, 3, 3)
	acts := jobOf(root, bcast, bcast).begun(3, 3, 3)
	acts[2].Active = 1
	elsewhere := jobOf(root, bcast, recv(0, 5, 41)).begun(3, 3, 3)
	for name, j := range map[string]Job{"behind": behind, "acts": acts, "elsewhere": elsewhere} {
		report := strings.Join(j.Report(), "\n")
		require.NotContains(t, report, different, name)
		require.NotContains(t, report, arguments, name)
	}
}

func TestReport_OtherCommunicator(t *testing.T) {
	j := jobOf(recv(1, 5, 41), nil)
	j[0].Comms = append(j[0].Comms, snapshot.Comm{ID: 7, Name: "rows"})
	j[0].Unexpected = []snapshot.Message{{Comm: 7, From: 1, Tag: 5}}
	require.Contains(t, j.Report(),
		"  rank 0: a message from 1 with tag 5 on rows has come; the receive asks for a message on world")
}

// A communicator on another endpoint than the world says so.
func TestReport_NamesEndpoints(t *testing.T) {
	j := jobOf(recv(1, 5, 41), nil)
	rows := contextid.OnEndpoint(2, 1)
	j[0].Waits[0].Ops[0].Comm = rows
	j[0].Comms = append(j[0].Comms, snapshot.Comm{ID: rows, Name: "rows"})
	j[0].Unexpected = []snapshot.Message{{From: 1, Tag: 5}}
	require.Equal(t, []string{
		"  rank 0: Recv from 1, tag 5, on rows@2, at solver.go:41",
		"  rank 1: in no call of weft",
		"  rank 0: a message from 1 with tag 5 on world has come; the receive asks for a message on rows@2",
	}, j.Report())
}

func TestRanks(t *testing.T) {
	require.Equal(t, "rank 3", Ranks([]int{3}))
	require.Equal(t, "ranks 0-2,5,7-8", Ranks([]int{0, 1, 2, 5, 7, 8}))
}

func TestSameProgress(t *testing.T) {
	a, b := jobOf(recv(1, 5, 41), nil), jobOf(recv(1, 5, 41), nil)
	require.True(t, SameProgress(a, b, []int{0, 1}))
	b[1].Progress++
	require.True(t, SameProgress(a, b, []int{0}))
	require.False(t, SameProgress(a, b, []int{0, 1}))
	a[0] = nil
	require.False(t, SameProgress(a, b, []int{0}))
}

func TestInFlight(t *testing.T) {
	j := jobOf(recv(1, 5, 41), recv(0, 5, 41), nil)
	require.False(t, j.InFlight([]int{0, 1}))
	j[0].Channels = []snapshot.Channel{{Peer: 1, Sent: 3, Received: 7}}
	require.True(t, j.InFlight([]int{0, 1}), "rank 1 does not know of any")
	j[1].Channels = []snapshot.Channel{{Peer: 0, Sent: 7, Received: 2}}
	require.True(t, j.InFlight([]int{0, 1}))
	j[1].Channels[0].Received = 3
	require.False(t, j.InFlight([]int{0, 1}))
	j[1].Channels = append(j[1].Channels, snapshot.Channel{Peer: 2, Sent: 9})
	require.False(t, j.InFlight([]int{0, 1}), "what goes to others counts for nothing")
}

// Whatever ranks say, the report is made.
func FuzzReport(f *testing.F) {
	for _, r := range jobOf(recv(1, 5, 41), collective("Bcast", 1)) {
		b, err := r.Encode()
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := snapshot.Decode(b)
		if err != nil || r.Size > 64 {
			return
		}
		j := make(Job, r.Size)
		for rank := range j {
			j[rank] = r
		}
		j.Stuck()
		j.Report()
	})
}

// A rank that waits for one in Finalize is the cause, and is not named again as missing there.
func TestReport_AnEarlyFinalize(t *testing.T) {
	early := jobOf(recv(1, 5, 41), collective(snapshot.Finalize, 0))
	early[1].Phase = snapshot.Finalizing
	report := strings.Join(early.Report(), "\n")
	require.Contains(t, report, "rank 1 is in Finalize and sends no more")
	require.NotContains(t, report, "has not called Finalize")
	early = jobOf(recv(1, 5, 41), collective(snapshot.Finalize, 0), collective("Barrier", 1))
	early[1].Phase = snapshot.Finalizing
	require.Contains(t, strings.Join(early.Report(), "\n"), "ranks 0,2 have not called Finalize")
}

// What ranks have left open on windows is told in lines of a bounded number.
func TestReport_OpenTransfers(t *testing.T) {
	j := jobOf(recv(1, 5, 1), recv(0, 5, 2))
	j[1].Open = []snapshot.Open{{Peer: 0, Gets: 1, Since: 1230 * time.Millisecond}}
	require.Contains(t, j.Report(), "  rank 1 has 1 Get on rank 0's part of window world, the oldest for 1.2s, "+
		"and no Fence, Flush or Unlock since")
	for range maxOpen + 2 {
		j[0].Open = append(j[0].Open, snapshot.Open{Peer: 1, Puts: 2, Gets: 3})
	}
	report := strings.Join(j.Report(), "\n")
	require.Equal(t, maxOpen, strings.Count(report, "rank 0 has 2 Puts and 3 Gets on rank 1's part"))
	require.Contains(t, report, "\n  and Puts and Gets on 3 parts more\n")
}
