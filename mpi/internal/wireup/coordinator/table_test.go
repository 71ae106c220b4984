package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// complete is the table of a job that has started.
func complete(t *testing.T, size int) *table {
	t.Helper()
	table := newTable("job", size)
	for r := range size {
		out, refused := table.join(hello{rank: uint32(r), size: uint32(size)})
		require.Nil(t, refused)
		require.Equal(t, r == size-1, len(out) == size)
	}
	return table
}

func to(out []delivery) (ranks []uint32) {
	for _, d := range out {
		ranks = append(ranks, d.rank)
	}
	return ranks
}

func TestTable_KeyValues(t *testing.T) {
	table := complete(t, 2)
	handle := func(m message) message {
		out, err := table.handle(1, m)
		require.NoError(t, err)
		require.Equal(t, []uint32{1}, to(out))
		return out[0].message
	}
	require.Equal(t, kindMissing, handle(message{kind: kindGet, key: "k"}).kind)
	require.Equal(t, kindDone, handle(message{kind: kindPut, key: "k", text: "v"}).kind)
	require.Equal(t, kindRefused, handle(message{kind: kindPut, key: "k", text: "w"}).kind)
	require.Equal(t, message{kind: kindDone, text: "v"}, handle(message{kind: kindGet, key: "k"}))
	stored := 0
	for key := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz", "") {
		if handle(message{kind: kindPut, key: key, text: strings.Repeat("x", maxText)}).kind == kindDone {
			stored++
		}
	}
	require.Equal(t, (maxSpace-2)/(maxText+1), stored)
}

func TestTable_Barrier(t *testing.T) {
	table := complete(t, 3)
	for range 2 {
		for r := range uint32(3) {
			out, err := table.handle(r, message{kind: kindBarrier})
			require.NoError(t, err)
			require.Equal(t, r == 2, len(out) == 3)
		}
	}
	_, err := table.handle(0, message{kind: kindBarrier})
	require.NoError(t, err)
	_, err = table.handle(0, message{kind: kindBarrier})
	require.Error(t, err, "twice")
}

// A job that goes on without a rank does so in the barrier, too.
func TestTable_Survives(t *testing.T) {
	table := complete(t, 4)
	table.survive = true
	for _, r := range []uint32{0, 2} {
		out, err := table.handle(r, message{kind: kindBarrier})
		require.NoError(t, err)
		require.Empty(t, out)
	}
	out := table.leave(1, "gone")
	require.Equal(t, []uint32{0, 2, 3}, to(out))
	for _, d := range out {
		require.Equal(t, kindWithout, d.kind)
		require.Equal(t, uint32(1), d.message.rank)
		require.False(t, d.final())
	}
	out = table.leave(3, "gone")
	require.Equal(t, []uint32{0, 2, 2, 0}, to(out), "rank 0 is released last: it may end at once")
	require.Equal(t, kindRelease, out[3].kind)
	out, err := table.handle(0, message{kind: kindAbort, number: 3}) // ends the job as usual
	require.NoError(t, err)
	require.Equal(t, []uint32{2, 0}, to(out))
	require.Empty(t, table.leave(2, "gone"))
}

// Each cause is told once, to the rank that is it after the others, and to rank 0 last.
func TestTable_Ends(t *testing.T) {
	table := complete(t, 4)
	out, err := table.handle(1, message{kind: kindAbort, number: 7})
	require.NoError(t, err)
	require.Equal(t, []uint32{2, 3, 1, 0}, to(out))
	require.Equal(t, message{kind: kindAborted, rank: 1, number: 7}, out[0].message)
	require.Empty(t, table.leave(2, "gone"))

	table = complete(t, 3)
	require.Equal(t, []uint32{1, 0}, to(table.leave(2, "gone")))
	require.Empty(t, table.leave(1, "gone"))

	table = complete(t, 2)
	_, err = table.handle(1, message{kind: kindPeerLost, number: 0})
	require.NoError(t, err)
	out, err = table.handle(1, message{kind: kindAbort, number: 1})
	require.NoError(t, err)
	require.Contains(t, out[0].text, "rank 0")

	table = complete(t, 2)
	_, err = table.handle(1, message{kind: kindFarewell})
	require.NoError(t, err)
	require.Empty(t, table.leave(1, "gone"))
	_, err = table.handle(1, message{kind: kindGet, key: "k"})
	require.Error(t, err, "after the farewell")
}

func TestTable_Start(t *testing.T) {
	table := newTable("job", 40)
	join := func(r uint32) *message {
		_, refused := table.join(hello{rank: r, size: 40})
		return refused
	}
	require.Nil(t, join(0))
	require.Nil(t, join(7))
	require.Empty(t, table.leave(7, "gone"))
	require.Nil(t, join(7), "a process may end and come again before the start")
	require.Contains(t, join(40).text, "no rank 40")
	_, err := table.handle(0, message{kind: kindPut, key: "k"})
	require.Error(t, err, "before the start")
	out := table.expire(time.Minute, "; callers refused: 1")
	require.Equal(t, []uint32{7, 0}, to(out))
	require.Equal(t, "ranks 1,2,3,4,5,6,8,9,10,11,12,13,14,15,16,17 and 22 more of 40 have not come within "+
		"1m0s; callers refused: 1", out[0].text)
	require.Equal(t, out[0].message, *join(1), "a late rank is told why")

	for _, second := range []hello{{rank: 1, size: 2}, {rank: 0, size: 3}} {
		table = newTable("job", 2)
		_, refused := table.join(hello{rank: 1, size: 2})
		require.Nil(t, refused)
		out, refused = table.join(second)
		require.Equal(t, []uint32{1}, to(out))
		require.Equal(t, out[0].message, *refused)
		_, refused = table.join(hello{rank: 0, size: 2})
		require.Equal(t, out[0].message, *refused, "rank 0 may be later than those that disagree")
	}

	table = complete(t, 2)
	_, refused := table.join(hello{rank: 1, size: 2})
	require.Contains(t, refused.text, "runs already")
	require.Empty(t, table.expire(time.Minute, ""))
}
