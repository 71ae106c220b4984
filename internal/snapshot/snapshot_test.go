package snapshot_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/deadlock"
	. "github.com/weft-mpi/weft/internal/snapshot"
)

// running is a rank that is fit to be read.
func running(rank, size int) Rank { return Rank{Rank: rank, Size: size, Phase: Running} }

// A rank is of the world that it names. Only one that is in Init, or whose Init has failed, has none.
func TestDecode_RankAndSize(t *testing.T) {
	for _, c := range []struct {
		rank, size int
		phase      Phase
		good       bool
	}{
		{0, 1, Running, true},
		{3, 4, Starting, true},
		{3, 4, Finalizing, true},
		{3, 4, Finished, true},
		{0, 0, Starting, true},
		{0, 0, Finished, true},
		{0, 0, Running, false},
		{0, 0, Finalizing, false},
		{0, 0, NotBegun, false},
		{0, 0, "", false},
		{1, 0, Starting, false},
		{-1, 0, Finished, false},
		{4, 4, Running, false},
		{-1, 4, Running, false},
		{0, -1, Starting, false},
	} {
		r := Rank{Rank: c.rank, Size: c.size, Phase: c.phase}
		b, err := r.Encode()
		require.NoError(t, err)
		_, err = Decode(b)
		require.Equal(t, c.good, err == nil, "%+v: %v", c, err)
		b, err = (&Sample{State: r}).Encode()
		require.NoError(t, err)
		_, err = DecodeSample(b)
		require.Equal(t, c.good, err == nil, "a sample: %+v: %v", c, err)
	}
}

// Every rank that a snapshot names is one of the world, and a rank without a world names none.
func TestDecode_RanksThatItNames(t *testing.T) {
	op := func(o Op) Rank { return Rank{Waits: []Wait{{Call: "Recv", Ops: []Op{o}}}} }
	for _, c := range []struct {
		name string
		of   func(rank int) Rank
	}{
		{"peer of a receive", func(rank int) Rank { return op(Op{Kind: Recv, Peer: rank}) }},
		{"peer of a send", func(rank int) Rank { return op(Op{Kind: Send, Peer: rank}) }},
		{"owner of a part of a window", func(rank int) Rank { return op(Op{Kind: Lock, Peer: rank}) }},
		{"member of a collective", func(rank int) Rank { return op(Op{Kind: Collective, Needs: []int{0, rank}}) }},
		{"lock that is held", func(rank int) Rank { return Rank{Locks: []Held{{Peer: rank}}} }},
		{"member of a communicator", func(rank int) Rank { return Rank{Comms: []Comm{{Ranks: []int{0, rank}}}} }},
		{"channel", func(rank int) Rank { return Rank{Channels: []Channel{{Peer: rank}}} }},
	} {
		for _, named := range []struct {
			rank, size int
			good       bool
		}{{0, 3, true}, {2, 3, true}, {3, 3, false}, {-2, 3, false}, {0, 0, false}} {
			r := c.of(named.rank)
			r.Size, r.Phase = named.size, Starting
			b, err := r.Encode()
			require.NoError(t, err)
			_, err = Decode(b)
			require.Equal(t, named.good, err == nil, "%s %+v: %v", c.name, named, err)
		}
	}
	r := op(Op{Kind: Recv, Peer: Any, Tag: Any})
	r.Size, r.Phase = 1, Running
	b, err := r.Encode()
	require.NoError(t, err)
	_, err = Decode(b)
	require.NoError(t, err, "a receive from any source")
}

func TestDecode_RefusesWhatIsNotOfItsVersionOrTooLong(t *testing.T) {
	r := running(0, 1)
	b, err := r.Encode()
	require.NoError(t, err)
	r.Version = Version + 1
	other, err := json.Marshal(r)
	require.NoError(t, err)
	long := append(b, make([]byte, MaxSize)...)
	for _, wrong := range [][]byte{other, long, nil, []byte("null"), []byte("[]"), b[:len(b)-1]} {
		_, err := Decode(wrong)
		require.Error(t, err, "%.80s", wrong)
		_, err = DecodeSample(append(append([]byte(`{"State":`), wrong...), '}'))
		require.Error(t, err, "a sample of %.80s", wrong)
	}
}

// What a rank without a world says is of the rank that was asked; all others are of the one that they name.
func TestRank_IsOf(t *testing.T) {
	for _, c := range []struct {
		rank       Rank
		number     int
		size       int
		is         bool
		afterwards [2]int
	}{
		{running(2, 4), 2, 4, true, [2]int{2, 4}},
		{running(2, 4), 1, 4, false, [2]int{2, 4}},
		{running(2, 4), 2, 5, false, [2]int{2, 4}},
		{running(0, 1), 0, 1, true, [2]int{0, 1}},
		{Rank{Phase: Starting}, 3, 4, true, [2]int{3, 4}},
		{Rank{Phase: Finished}, 0, 1, true, [2]int{0, 1}},
	} {
		r := c.rank
		require.Equal(t, c.is, r.IsOf(c.number, c.size), "%+v", c)
		require.Equal(t, c.afterwards, [2]int{r.Rank, r.Size}, "%+v", c)
	}
}

// FuzzDecodeSample: what is accepted is read again as it was, names ranks of the world alone, and can be
// described, as the launcher does it for weft top.
func FuzzDecodeSample(f *testing.F) {
	full := running(1, 3)
	full.Active, full.At = 1, "solver.go:36"
	full.Waits = []Wait{
		{Call: "Waitany", Site: "solver.go:41", Goroutine: 7, Since: time.Second, MoreOps: 2, Ops: []Op{
			{Kind: Recv, Peer: Any, Tag: Any, Bytes: 8}, {Kind: Send, Peer: 2, Tag: 5, Moving: true}}},
		{Call: "Allreduce", Bounded: true, Ops: []Op{{Kind: Collective, Name: "Allreduce", Comm: 4, Number: 9,
			Needs: []int{0, 2}}}},
		{Call: "Flush", Ops: []Op{{Kind: Lock, Peer: 0, Comm: 5}}},
		{Call: "Put", Ops: []Op{{Kind: Send, Name: "Put", Peer: 2}}},
	}
	full.Comms = []Comm{{Name: "world"}, {ID: 4, Name: "halo", Ranks: []int{1, 2}, Begun: 9}}
	for _, s := range []*Sample{
		{State: full, Up: time.Minute, Asleep: time.Second, Sent: 9, SentBytes: 72, Memory: 1 << 20,
			Phases: []int{1, 1}, Lanes: 2, LanesLost: 1},
		{State: Rank{Phase: Starting, Waits: []Wait{{Call: Init, Site: "solver.go:24"}}}},
		{State: Rank{Phase: Finished}},
	} {
		b, err := s.Encode()
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSample(b)
		if err != nil {
			return
		}
		first, err := s.Encode()
		require.NoError(t, err)
		if len(first) <= MaxSize {
			again, err := DecodeSample(first)
			require.NoError(t, err)
			second, err := again.Encode()
			require.NoError(t, err)
			require.Equal(t, string(first), string(second))
		}
		const asked, size = 5, 64
		whole := s.State.Size > 0
		require.Equal(t, !whole || s.State.Rank == asked && s.State.Size == size, s.State.IsOf(asked, size))
		for i := range s.State.Waits {
			w := &s.State.Waits[i]
			require.NotPanics(t, func() { deadlock.Describe(&s.State, w) })
			for _, o := range w.Ops {
				require.True(t, o.Kind == Collective || o.Peer == Any || o.Peer >= 0 && o.Peer < s.State.Size)
			}
		}
	})
}
