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

// TestDemand_E11_NotBeforeItsTime: larger slots are not given back before a whole interval has passed without
// need of them, even if a ShrinkIfIdle comes before the message for which they were asked.
func TestDemand_E11_NotBeforeItsTime(t *testing.T) {
	d := newTestPair(t, Config{})
	d.sendThrough(t, d.a, d.b, element(1, 100))
	require.NoError(t, d.a.requestPhase(1))
	d.driveUntilIdle(t)
	require.Equal(t, 1, d.a.Phase())
	for range 2 {
		require.NoError(t, d.a.ShrinkIfIdle())
		d.driveUntilIdle(t)
		require.Equal(t, 1, d.a.Phase())
	}
	require.NoError(t, d.a.ShrinkIfIdle())
	d.driveUntilIdle(t)
	require.Equal(t, 0, d.a.Phase())
	require.EqualValues(t, 1, d.a.Stats().ShrinksGranted)
}

// TestDemand_E11_TheThresholdCounts: a message that would ask for larger slots at once keeps those that there
// are.
func TestDemand_E11_TheThresholdCounts(t *testing.T) {
	for name, conf := range map[string]Config{
		"bytes":    {Threshold: 100},
		"per cent": {ThresholdPercent: 80},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestPair(t, conf)
			n := d.a.MaxElement(16) + 1
			for range 10 {
				d.sendThrough(t, d.a, d.b, element(1, n))
				require.Equal(t, 1, d.a.Phase())
				require.NoError(t, d.a.ShrinkIfIdle())
				d.driveUntilIdle(t)
			}
			require.EqualValues(t, 1, d.a.Stats().EnlargesSent)
			require.Zero(t, d.a.Stats().ShrinksSent)
		})
	}
}

// TestDemand_E11_RefusedShrinkForbidsNothing: whoever has no memory for the small ring, the channel stays
// large and can still change.
func TestDemand_E11_RefusedShrinkForbidsNothing(t *testing.T) {
	for _, ours := range []bool{true, false} {
		d := newTestPair(t, Config{Phases: threePhases})
		d.sendThrough(t, d.a, d.b, element(1, 1000))
		c := d.b
		if ours {
			c = d.a
		}
		pd := &tickPD{c.memory.pd, true}
		c.memory.pd = pd
		for range 4 {
			require.NoError(t, d.a.ShrinkIfIdle())
			d.driveUntilIdle(t)
		}
		require.Equal(t, 1, d.a.Phase())
		require.NotZero(t, d.a.Stats().ResizesRefused)
		require.Zero(t, d.a.Stats().ShrinksGranted)
		pd.empty = false
		d.sendThrough(t, d.a, d.b, element(2, 20000))
		require.Equal(t, 2, d.a.Phase())
	}
}

// TestEnlarge_E3_OutOfTurn: Enlarge is a transfer of nothing before Open and while a request is open.
func TestEnlarge_E3_OutOfTurn(t *testing.T) {
	d := newTestPair(t, Config{Phases: threePhases})
	c, err := New(d.A.PD(), Config{})
	require.NoError(t, err)
	v := &Vector{Elems: [][]byte{element(1, 1000)}}
	o, err := c.GrowFor(v, 0)
	require.NoError(t, err)
	require.Equal(t, Waiting, o)
	require.NoError(t, c.Close())

	for range 3 {
		o, err = d.a.GrowFor(v, 0)
		require.NoError(t, err)
		require.Equal(t, Waiting, o)
		v = &Vector{Elems: [][]byte{element(1, 20000)}}
	}
	require.EqualValues(t, 1, d.a.Stats().EnlargesSent)
	require.Equal(t, 1, d.a.pending.target.phase)
}

// TestProgress_E12_ReservedLines: a CREDIT takes the lines of a message that is reserved and not committed;
// that must be reserved again.
func TestProgress_E12_ReservedLines(t *testing.T) {
	d := newTestPair(t, Config{})
	for d.a.send.lines-d.a.send.pos != 10 { // what is reserved ends where the ring does
		sendMalformed(t, d.a, Eager, nil)
		if d.a.send.pos == 60 { // of all but this one it is told, so the wrap goes on
			_, err := d.b.Progress()
			require.NoError(t, err)
		}
		d.drive(t)
		receiveAll(t, d.b)
		receiveAll(t, d.a)
	}
	for int(d.b.send.sent-d.a.recv.advertised) < d.a.recv.threshold {
		sendMalformed(t, d.b, Eager, nil)
	}
	d.drive(t)
	require.NotNil(t, d.a.Reserve(616))
	receiveAll(t, d.a)
	_, err := d.a.Progress()
	require.NoError(t, err)
	require.ErrorIs(t, d.a.Commit(Eager, false), transport.ErrInvalid)
	d.driveUntilIdle(t)
}

// TestEnlarge_E3_NothingAfterTheRequest: from the request to its reply nothing can be reserved, and no
// CREDIT goes.
func TestEnlarge_E3_NothingAfterTheRequest(t *testing.T) {
	d := newTestPair(t, Config{})
	require.NotNil(t, d.a.Reserve(10))
	require.NoError(t, d.a.requestPhase(1))
	require.ErrorIs(t, d.a.Commit(Eager, false), transport.ErrInvalid, "what was reserved before is gone")
	require.Nil(t, d.a.Reserve(10))
	require.Nil(t, d.a.ReserveControl(10))
	for int(d.b.send.sent-d.a.recv.advertised) < d.a.recv.threshold {
		sendMalformed(t, d.b, Eager, nil)
	}
	d.drive(t)
	receiveAll(t, d.a)
	owing, err := d.a.Progress()
	require.NoError(t, err)
	require.True(t, owing)
	require.Zero(t, d.a.Stats().Credits)
	d.driveUntilIdle(t)
	require.NotZero(t, d.a.Stats().Credits)
}

// TestEnlarge_E7_Generations: neither of a request nor of a ring can the generation be known from those
// before.
func TestEnlarge_E7_Generations(t *testing.T) {
	d := newTestPair(t, Config{})
	seen := map[uint64]bool{d.a.send.generation: true}
	for range 4 {
		for phase := 1; phase >= 0; phase-- {
			ring := d.a.send.generation
			require.NoError(t, d.a.requestPhase(phase))
			for _, g := range []uint64{d.a.pending.generation, ring} {
				seen[g] = true
			}
			d.driveUntilIdle(t)
			require.Equal(t, phase, d.a.Phase())
			require.Greater(t, d.a.send.generation-ring, uint64(1<<20))
		}
	}
	require.Len(t, seen, 8+8) // each of its own
}

// TestEnlarge_E7_ReplyIsCopiedAtThePost: the peer may write where replies are made up, and the ring may be
// gone when it goes.
func TestEnlarge_E7_ReplyIsCopiedAtThePost(t *testing.T) {
	d := newTestPair(t, Config{})
	require.NoError(t, d.a.requestPhase(1))
	d.drive(t)
	require.Empty(t, receiveAll(t, d.b))
	b := d.b.recv.buffer
	clear(b.Bytes()[b.replyOffset():])
	d.drive(t)
	_, err := d.a.Progress()
	require.NoError(t, err)
	require.Equal(t, 1, d.a.Phase())
}

// TestEnlarge_E11_StallsAreCountedOnce: to look again for credits that have not come is no new stall.
func TestEnlarge_E11_StallsAreCountedOnce(t *testing.T) {
	d := newTestPair(t, Config{})
	for d.a.Reserve(600) != nil {
		require.NoError(t, d.a.Commit(Eager, false))
	}
	for range 2 * stallLimit {
		require.Nil(t, d.a.Reserve(600))
	}
	require.EqualValues(t, 1, d.a.Stats().Stalls)
	require.NotEqual(t, DueResize, d.a.Due())
}

// TestCreditStall_E11_EnoughInFlight: where memory is shared, a ring that has grown and holds 32 messages as
// long as those that starve in it does not grow for them; for longer ones it does, and elsewhere for all.
func TestCreditStall_E11_EnoughInFlight(t *testing.T) {
	const lines = 2048
	for _, c := range []struct {
		near  bool
		n     int
		grows bool
	}{
		{false, 10, true},
		{true, 10, false},
		{true, lines/enoughInFlight*lineSize - overhead, false},
		{true, lines/enoughInFlight*lineSize - overhead + 1, true},
	} {
		d := newTestPair(t, Config{Phases: threePhases})
		d.a.peerMapped = c.near
		d.sendThrough(t, d.a, d.b, element(1, 9000))
		require.Equal(t, 1, d.a.Phase())
		require.Equal(t, lines, d.a.send.lines)
		for range stallLimit + 5 {
			for d.a.Reserve(c.n) != nil {
				require.NoError(t, d.a.Commit(Eager, false))
				d.drive(t)
			}
			receiveAll(t, d.b)
			d.driveUntilIdle(t)
		}
		require.Equal(t, c.grows, d.a.Phase() == 2, "%+v", c)
		require.GreaterOrEqual(t, d.a.Stats().Stalls, uint64(stallLimit))
	}
}
