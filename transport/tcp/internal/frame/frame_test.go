package frame

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// What a header says survives the wire; what no weft sends is refused, and says what it was.
func FuzzHeader(f *testing.F) {
	for o := Op(0); o <= Ops; o++ {
		f.Add(Header{Length: 8, Op: o, Flags: Last, A: 1, B: 2}.Append(nil))
	}
	f.Add(Header{Length: MaxPayload, Op: Write, Flags: KnownFlags, A: 1<<64 - 1,
		B: 1<<64 - 1}.Append(nil))
	f.Add(Header{Length: MaxPayload + 1, Op: Send}.Append(nil))
	f.Add(Header{Length: MaxControl, Op: ReadRequest}.Append(nil))
	f.Add(Header{Length: MaxControl + 1, Op: Terminate}.Append(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		h, err := Parse(b)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.Equal(t, Header{}, h)
			return
		}
		require.Equal(t, b[:HeaderSize], h.Append(nil), "a header that is accepted is written the same way")
		require.LessOrEqual(t, h.Length, MaxPayload)
		again, err := Parse(h.Append(nil))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

// Every frame type has a limit of its own, and one byte more is refused with what it was.
func TestHeader_Limits(t *testing.T) {
	for o := Ready; o < Ops; o++ {
		maxPayload := 0
		switch o {
		case Write, Send, ReadWrite:
			maxPayload = 131072
		case ReadRequest, Terminate:
			maxPayload = 384
		case Atomic:
			maxPayload = SegmentSize
		}
		_, err := Parse(Header{Length: maxPayload, Op: o}.Append(nil))
		require.NoError(t, err, "%v of %d bytes", o, maxPayload)
		_, err = Parse(Header{Length: maxPayload + 1, Op: o}.Append(nil))
		require.ErrorIs(t, err, transport.ErrProtocol)
		require.ErrorContains(t, err, o.String())
	}
	for name, b := range map[string][]byte{
		"frame type 0":  Header{}.Append(nil),
		"frame type 12": Header{Op: Ops}.Append(nil),
		"flags 0x4":     Header{Op: Write, Flags: 4}.Append(nil),
		"flags 0x100":   {0, 0, 0, 0, byte(Write), 0, 1, 0, 23: 0},
	} {
		_, err := Parse(b)
		require.ErrorContains(t, err, name)
	}
}

func TestSegment_SurvivesTheWire(t *testing.T) {
	var b [SegmentSize]byte
	want := transport.Segment{Key: 1<<64 - 2, Offset: 1<<63 + 1, Length: 3}
	PutSegment(b[:], want)
	require.Equal(t, want, ParseSegment(b[:]))
}

// 64 KiB of a view are two frames, the first of 60 KiB, in one write, whatever stands in their headers.
func TestBatch_Has64KiB(t *testing.T) {
	var o Batch
	for _, header := range []int{HeaderSize, HeaderSize + SumSize, LaneHeaderSize,
		LaneHeaderSize + SumSize} {
		o.Reset(header)
		o.Begin(Header{}, 60<<10)
		o.Finish()
		require.False(t, o.Full())
		require.GreaterOrEqual(t, o.MaxCopy(), 4<<10, "%d bytes of header", header)
	}
}
