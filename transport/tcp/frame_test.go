package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// What a header says survives the wire; what no weft sends is refused, and says what it was.
func FuzzHeader(f *testing.F) {
	for o := op(0); o <= ops; o++ {
		f.Add(header{length: 8, op: o, flags: flagLast, a: 1, b: 2}.append(nil))
	}
	f.Add(header{length: framePayload, op: opWrite, flags: flagsKnown, a: 1<<64 - 1, b: 1<<64 - 1}.append(nil))
	f.Add(header{length: framePayload + 1, op: opSend}.append(nil))
	f.Add(header{length: maxControl, op: opReadRequest}.append(nil))
	f.Add(header{length: maxControl + 1, op: opTerminate}.append(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		h, err := parseHeader(b)
		if err != nil {
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.Equal(t, header{}, h)
			return
		}
		require.Equal(t, b[:headerSize], h.append(nil), "a header that is accepted is written the same way")
		require.LessOrEqual(t, h.length, framePayload)
		again, err := parseHeader(h.append(nil))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

// Every frame type has a limit of its own, and one byte more is refused with what it was.
func TestHeader_Limits(t *testing.T) {
	for o := opReady; o < ops; o++ {
		most := 0
		switch o {
		case opWrite, opSend, opReadWrite:
			most = 131072
		case opReadRequest, opTerminate:
			most = 384
		}
		_, err := parseHeader(header{length: most, op: o}.append(nil))
		require.NoError(t, err, "%v of %d bytes", o, most)
		_, err = parseHeader(header{length: most + 1, op: o}.append(nil))
		require.ErrorIs(t, err, transport.ErrProtocol)
		require.ErrorContains(t, err, o.String())
	}
	for name, b := range map[string][]byte{
		"frame type 0": header{}.append(nil),
		ops.String():   header{op: ops}.append(nil),
		"flags 0x4":    header{op: opWrite, flags: 4}.append(nil),
		"flags 0x100":  {0, 0, 0, 0, byte(opWrite), 0, 1, 0, 23: 0},
	} {
		_, err := parseHeader(b)
		require.ErrorContains(t, err, name)
	}
}

func TestSegment_SurvivesTheWire(t *testing.T) {
	var b [segmentSize]byte
	want := transport.Segment{Key: 1<<64 - 2, Offset: 1<<63 + 1, Length: 3}
	putSegment(b[:], want)
	require.Equal(t, want, parseSegment(b[:]))
}
