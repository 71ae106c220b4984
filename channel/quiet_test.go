package channel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// tickPD has no memory while it is told so.
type tickPD struct {
	transport.PD
	empty bool
}

func (p *tickPD) Alloc(n int, access transport.Access) (transport.MR, error) {
	if p.empty {
		return nil, errNoMemory
	}
	return p.PD.Alloc(n, access)
}

// TestQuiet_E11_NotBeforeItsTime: larger slots are not given back before a whole interval has passed without need of them, even if a
// Tick comes before the message for which they were asked.
func TestQuiet_E11_NotBeforeItsTime(t *testing.T) {
	d := pairUp(t, Config{})
	d.through(t, d.a, d.b, element(1, 100))
	require.NoError(t, d.a.want(1))
	d.settle(t)
	require.Equal(t, 1, d.a.Phase())
	for range 2 {
		require.NoError(t, d.a.Tick())
		d.settle(t)
		require.Equal(t, 1, d.a.Phase())
	}
	require.NoError(t, d.a.Tick())
	d.settle(t)
	require.Equal(t, 0, d.a.Phase())
	require.EqualValues(t, 1, d.a.Stats().Shrunk)
}

// TestQuiet_E11_TheThresholdCounts: a message that would ask for larger slots at once keeps those that there are.
func TestQuiet_E11_TheThresholdCounts(t *testing.T) {
	for name, conf := range map[string]Config{
		"bytes":    {Threshold: 100},
		"per cent": {ThresholdPercent: 80},
	} {
		t.Run(name, func(t *testing.T) {
			d := pairUp(t, conf)
			n := d.a.Room(16) + 1
			for range 10 {
				d.through(t, d.a, d.b, element(1, n))
				require.Equal(t, 1, d.a.Phase())
				require.NoError(t, d.a.Tick())
				d.settle(t)
			}
			require.EqualValues(t, 1, d.a.Stats().Asked)
			require.Zero(t, d.a.Stats().ShrinksAsked)
		})
	}
}

// TestQuiet_E11_RefusedShrinkForbidsNothing: whoever has no memory for the small ring, the channel stays large and can still change.
func TestQuiet_E11_RefusedShrinkForbidsNothing(t *testing.T) {
	for _, ours := range []bool{true, false} {
		d := pairUp(t, Config{Phases: threePhases})
		d.through(t, d.a, d.b, element(1, 1000))
		c := d.b
		if ours {
			c = d.a
		}
		pd := &tickPD{c.pd, true}
		c.pd = pd
		for range 4 {
			require.NoError(t, d.a.Tick())
			d.settle(t)
		}
		require.Equal(t, 1, d.a.Phase())
		require.NotZero(t, d.a.Stats().Refused)
		require.Zero(t, d.a.Stats().Shrunk)
		pd.empty = false
		d.through(t, d.a, d.b, element(2, 20000))
		require.Equal(t, 2, d.a.Phase())
	}
}

// TestEnlarge_E3_OutOfTurn: Enlarge is a transfer of nothing before Open and while a question is open.
func TestEnlarge_E3_OutOfTurn(t *testing.T) {
	d := pairUp(t, Config{Phases: threePhases})
	c, err := New(d.A.PD(), Config{})
	require.NoError(t, err)
	v := &Vector{Elems: [][]byte{element(1, 1000)}}
	o, err := c.Enlarge(v, 0)
	require.NoError(t, err)
	require.Equal(t, Waiting, o)
	require.NoError(t, c.Close())

	for range 3 {
		o, err = d.a.Enlarge(v, 0)
		require.NoError(t, err)
		require.Equal(t, Waiting, o)
		v = &Vector{Elems: [][]byte{element(1, 20000)}}
	}
	require.EqualValues(t, 1, d.a.Stats().Asked)
	require.Equal(t, 1, d.a.asking.target.phase)
}

// TestProgress_E12_ReservedLines: a CREDIT takes the lines of a message that is reserved and not committed; that must be reserved again.
func TestProgress_E12_ReservedLines(t *testing.T) {
	d := pairUp(t, Config{})
	for d.a.send.lines-d.a.send.pos != 10 { // what is reserved ends where the ring does
		lie(t, d.a, Eager, nil)
		if d.a.send.pos == 60 { // of all but this one it is told, so the lap goes on
			_, err := d.b.Progress()
			require.NoError(t, err)
		}
		d.drive(t)
		taken(t, d.b)
		taken(t, d.a)
	}
	for int(d.b.send.sent-d.a.recv.told) < d.a.recv.threshold {
		lie(t, d.b, Eager, nil)
	}
	d.drive(t)
	require.NotNil(t, d.a.Reserve(616))
	taken(t, d.a)
	_, err := d.a.Progress()
	require.NoError(t, err)
	require.ErrorIs(t, d.a.Commit(Eager, false), transport.ErrInvalid)
	d.settle(t)
}

// TestEnlarge_E3_NothingBehindTheQuestion: from the question to its answer nothing can be reserved, and no CREDIT goes.
func TestEnlarge_E3_NothingBehindTheQuestion(t *testing.T) {
	d := pairUp(t, Config{})
	require.NotNil(t, d.a.Reserve(10))
	require.NoError(t, d.a.want(1))
	require.ErrorIs(t, d.a.Commit(Eager, false), transport.ErrInvalid, "what was reserved before is gone")
	require.Nil(t, d.a.Reserve(10))
	require.Nil(t, d.a.ReserveControl(10))
	for int(d.b.send.sent-d.a.recv.told) < d.a.recv.threshold {
		lie(t, d.b, Eager, nil)
	}
	d.drive(t)
	taken(t, d.a)
	owing, err := d.a.Progress()
	require.NoError(t, err)
	require.True(t, owing)
	require.Zero(t, d.a.Stats().Credits)
	d.settle(t)
	require.NotZero(t, d.a.Stats().Credits)
}

// TestEnlarge_E7_Generations: neither of a question nor of a ring can the generation be known from those before.
func TestEnlarge_E7_Generations(t *testing.T) {
	d := pairUp(t, Config{})
	seen := map[uint64]bool{d.a.send.generation: true}
	for range 4 {
		for phase := 1; phase >= 0; phase-- {
			ring := d.a.send.generation
			require.NoError(t, d.a.want(phase))
			for _, g := range []uint64{d.a.asking.generation, ring} {
				seen[g] = true
			}
			d.settle(t)
			require.Equal(t, phase, d.a.Phase())
			require.Greater(t, d.a.send.generation-ring, uint64(1<<20))
		}
	}
	require.Len(t, seen, 8+8) // each of its own
}

// TestEnlarge_E7_AnswerIsCopiedAtThePost: the peer may write where answers are made up, and the ring may be gone when it goes.
func TestEnlarge_E7_AnswerIsCopiedAtThePost(t *testing.T) {
	d := pairUp(t, Config{})
	require.NoError(t, d.a.want(1))
	d.drive(t)
	require.Empty(t, taken(t, d.b))
	b := d.b.recv.buffer
	clear(b.Bytes()[b.landing():])
	d.drive(t)
	_, err := d.a.Progress()
	require.NoError(t, err)
	require.Equal(t, 1, d.a.Phase())
}

// TestEnlarge_E11_StallsAreCountedOnce: to look again for credits that have not come is no new stall.
func TestEnlarge_E11_StallsAreCountedOnce(t *testing.T) {
	d := pairUp(t, Config{})
	for d.a.Reserve(600) != nil {
		require.NoError(t, d.a.Commit(Eager, false))
	}
	for range 2 * starveLimit {
		require.Nil(t, d.a.Reserve(600))
	}
	require.EqualValues(t, 1, d.a.Stats().Stalls)
	require.False(t, d.a.Paused())
}

// TestStarved_E11_PlentyIsEnough: where memory is shared, a ring that has grown and holds 32 messages as long as those that starve in it does not grow for
// them; for longer ones it does, and elsewhere for all.
func TestStarved_E11_PlentyIsEnough(t *testing.T) {
	const lines = 2048
	for _, c := range []struct {
		near  bool
		n     int
		grows bool
	}{
		{false, 10, true},
		{true, 10, false},
		{true, lines/plenty*lineSize - overhead, false},
		{true, lines/plenty*lineSize - overhead + 1, true},
	} {
		d := pairUp(t, Config{Phases: threePhases})
		d.a.near = c.near
		d.through(t, d.a, d.b, element(1, 9000))
		require.Equal(t, 1, d.a.Phase())
		require.Equal(t, lines, d.a.send.lines)
		for range starveLimit + 5 {
			for d.a.Reserve(c.n) != nil {
				require.NoError(t, d.a.Commit(Eager, false))
				d.drive(t)
			}
			taken(t, d.b)
			d.settle(t)
		}
		require.Equal(t, c.grows, d.a.Phase() == 2, "%+v", c)
		require.GreaterOrEqual(t, d.a.Stats().Stalls, uint64(starveLimit))
	}
}
