package channel

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// FuzzRequest: what is accepted is what put writes, and for a phase that there is.
func FuzzRequest(f *testing.F) {
	f.Add(resizeRequest{1, 2, 3, 4}.bytes(), uint8(3))
	f.Add(resizeRequest{7, 1 << 63, 1 << 63, 1 << 63}.bytes(), uint8(8))
	f.Add(resizeRequest{1, 2, 3, 4}.bytes()[1:], uint8(3))
	f.Add([]byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, phases uint8) {
		q, err := parseRequest(b, int(phases))
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		require.GreaterOrEqual(t, q.phase, 0)
		require.Less(t, q.phase, int(phases))
		require.Equal(t, b, q.bytes())
	})
}

// FuzzReply: what is accepted, once the checksum is right, is what put writes, and a ring of one of our
// phases.
func FuzzReply(f *testing.F) {
	add := func(a resizeReply) {
		line := make([]byte, replyLen)
		a.put(line, 99)
		f.Add(line)
		line = bytes.Clone(line)
		line[50]++
		f.Add(line)
	}
	add(resizeReply{ack: true, shape: geometry(threePhases, 1), key: 5, offset: 64, generation: 6})
	add(resizeReply{ack: true, shape: geometry(threePhases, 2), key: 5, generation: 6})
	add(resizeReply{ack: true, shape: geometry(threePhases, 0), generation: 1 << 63})
	add(resizeReply{ack: true, shape: geometry(threePhases, 0)})
	add(resizeReply{shape: geometry(threePhases, 2)})
	add(resizeReply{shape: geometry(threePhases, 0)})
	f.Fuzz(func(t *testing.T, b []byte) {
		line := make([]byte, replyLen)
		copy(line, b)
		if a, err := parseReply(line, threePhases); err == nil {
			require.Equal(t, checksum(line), binary.LittleEndian.Uint32(line[20:]), a)
		} else {
			require.ErrorIs(t, err, transport.ErrProtocol)
		}
		binary.LittleEndian.PutUint32(line[20:], checksum(line))
		a, err := parseReply(line, threePhases)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.NotErrorIs(t, err, errCorruptReply)
			return
		}
		require.Equal(t, geometry(threePhases, a.shape.phase), a.shape)
		require.Less(t, a.offset, uint64(1)<<41)
		require.True(t, a.ack || a.generation == 0)
		again := make([]byte, replyLen)
		a.put(again, 0)
		copy(again, line[:8])
		copy(again[replyTail:], line[replyTail:])
		require.Equal(t, line, again)
	})
}

// FuzzPhases: whatever a user sets is refused, or makes rings that nobody can starve in and that keep to the
// limits.
func FuzzPhases(f *testing.F) {
	f.Add("640,16384", 0, 0, uint8(0), 0)
	f.Add("100,1000,200000", 1, 0, uint8(1), 1<<20)
	f.Add(" 2000 , 2001", 0, 80, uint8(2), 16<<10)
	f.Add("1999,2000,2001,2002,2003,2004,2005,2006", 0, 99, uint8(0), 0)
	f.Add("640,,16384", -1, 100, uint8(9), -1)
	f.Add("99999999999999999999", 0, 0, uint8(0), 0)
	f.Fuzz(func(t *testing.T, text string, threshold, percent int, policy uint8, budget int) {
		phases, err := ParsePhases(text)
		if err != nil {
			require.Empty(t, phases)
			return
		}
		require.NotEmpty(t, phases)
		c := Config{Phases: phases, Threshold: threshold, ThresholdPercent: percent, Policy: Policy(policy)}
		if budget != 0 {
			c.Budget = NewBudget(budget)
		}
		if c.Check() != nil {
			return
		}
		for p, slot := range phases {
			s := geometry(phases, p)
			require.Equal(t, slot, s.slot)
			low, high := thresholds(s.lines, linesIn(slot))
			require.LessOrEqual(t, low, high, "phase %d of %v", p, phases)
			require.Greater(t, s.threshold()*5, s.lines)
			require.Greater(t, s.body(), requestLen)
			require.Positive(t, c.limit(p, slot))
			require.LessOrEqual(t, s.body(), lengthMask)
		}
		if len(phases) > 1 || phases[0] <= maxSmall {
			require.LessOrEqual(t, 2*geometry(phases, 0).region(), maxSmallMemory)
		}
		d, err := ParseDescriptor(Descriptor{Phases: phases, Key: 1, Generation: 2}.Append(nil))
		require.NoError(t, err)
		require.Equal(t, phases, d.Phases)
	})
}
