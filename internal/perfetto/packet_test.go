package perfetto

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func packets() []*Packet {
	seven := int64(-7)
	return []*Packet{
		{Sequence: 1, Flags: Cleared, Track: &Track{ID: 1 << 32, Process: &Process{PID: 1, Name: "rank 0",
			Labels: []string{"0 of 2"}}}},
		{Sequence: 1, Flags: NeedsInterned, Track: &Track{ID: 2, Parent: 1 << 32, Name: "bytes", Counter: Bytes}},
		{Sequence: 1, Flags: NeedsInterned, Time: 5, Interned: &Interned{Categories: []Name{{1, "mpi"}},
			Names: []Name{{1, "Send"}}, Annotations: []Name{{1, "peer"}, {2, "communicator"}}},
			Event: &Event{Type: Instant, Track: 3, Name: 1, Category: 1, Flows: []uint64{1 << 60}, Ends: []uint64{4},
				Annotations: []Annotation{{Name: 1, Number: &seven}, {Name: 2, Text: "world"}}}},
		{Sequence: 1, Flags: NeedsInterned, Time: 9, Event: &Event{Type: Counter, Track: 2, Value: -3}},
	}
}

func TestReader_ReadsWhatWasAppended(t *testing.T) {
	var b []byte
	for _, p := range packets() {
		b = p.Append(b)
	}
	r := NewReader(bytes.NewReader(b))
	for _, want := range packets() {
		got, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := r.Next()
	require.Equal(t, io.EOF, err)
	_, err = NewReader(bytes.NewReader(b[:len(b)-1])).Next()
	require.NoError(t, err)
	_, err = NewReader(bytes.NewReader([]byte("weft events of"))).Next()
	require.ErrorIs(t, err, ErrNoTrace)
}

// The bytes of a packet, field by field, as Perfetto's protos have them.
func TestPacket_IsPerfettos(t *testing.T) {
	p := &Packet{Time: 1, Sequence: 2, Flags: NeedsInterned,
		Event: &Event{Type: SliceBegin, Track: 3, Name: 4, Flows: []uint64{5}}}
	require.Equal(t, []byte{
		1<<3 | 2, 24, // packet
		8 << 3, 1, // timestamp
		10 << 3, 2, // trusted_packet_sequence_id
		13 << 3, 2, // sequence_flags
		11<<3 | 2, 16, // track_event
		9 << 3, 1, 11 << 3, 3, 10 << 3, 4, // type, track_uuid, name_iid
		0xf9, 0x02, 5, 0, 0, 0, 0, 0, 0, 0, // flow_ids: 47 as fixed64
	}, p.Append(nil))
}

func FuzzReader(f *testing.F) {
	var b []byte
	for _, p := range packets() {
		b = p.Append(b)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		for {
			p, err := r.Next()
			if err != nil {
				return
			}
			p.Append(nil)
		}
	})
}
