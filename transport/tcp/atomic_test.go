package tcp

import (
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

func TestSpec_Atomics(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	into, err := s.pd.Alloc(8, transport.LocalWrite)
	require.NoError(t, err)
	s.heard(t)
	require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: transport.OpFetchAdd, Operand: 0x0102030405060708,
		Local:  []transport.SGE{{MR: into, Length: 8}},
		Remote: []transport.Segment{{Key: 0x21, Offset: 0x38, Length: 8}}}))
	frames := s.heard(t)
	f := frames[len(frames)-1]
	require.Equal(t, frame.Atomic, f.Op)
	require.Zero(t, f.B)
	fields(t, "Atomics", f.payload, map[string][]byte{"key": le64(0x21), "offset": le64(0x38),
		"operand": le64(0x0102030405060708)})
	s.says(t, frame.Header{Op: frame.AtomicDone, Flags: frame.Last, A: f.A, B: 1<<63 + 5}.Append(nil))
	require.Equal(t, uint64(1<<63+5), binary.NativeEndian.Uint64(into.Bytes()), "in the byte order of the host")
}

// Between Atomics and Reads the order of the answers is that of the requests, whichever is done first at the
// responder.
func TestAtomic_AnswersAreInTheOrderOfTheRequests(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	m, err := s.pd.Alloc(64, transport.RemoteAtomic|transport.RemoteRead)
	require.NoError(t, err)
	var sent []byte
	add := func(h frame.Header, payload []byte) {
		h.Length = len(payload)
		sent = append(h.Append(sent), payload...)
	}
	add(atomicRequest(0, m.Key(), 8, 1))
	add(readRequest(1, transport.Segment{Key: m.Key(), Length: 16}, transport.Segment{Length: 16}))
	add(atomicRequest(2, m.Key(), 8, 1))
	add(atomicRequest(7, m.Key(), 8, 9))
	s.heard(t)
	s.says(t, sent)
	var ops []frame.Op
	var numbers []uint64
	for _, f := range s.heard(t) {
		ops = append(ops, f.Op)
		number := f.A
		if f.Op == frame.ReadWrite {
			_, number = frame.SplitPlacement(f.B)
		}
		numbers = append(numbers, number)
	}
	require.Equal(t, []frame.Op{frame.AtomicDone, frame.ReadWrite, frame.AtomicDone, frame.AtomicDone}, ops)
	require.Equal(t, []uint64{0, 1, 2, 7}, numbers)
	require.Equal(t, uint64(11), binary.NativeEndian.Uint64(m.Bytes()[8:]))
}

// An Atomic allocates nothing at either end.
func TestAllocations_Atomic(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	m, err := s.pd.Alloc(64, transport.RemoteAtomic)
	require.NoError(t, err)
	head, payload := atomicRequest(0, m.Key(), 8, 1)
	head.Length = len(payload)
	wr := &transport.SendWR{Op: transport.OpFetchAdd, Operand: 1, Local: []transport.SGE{{MR: m, Length: 8}},
		Remote: []transport.Segment{{Key: 1, Length: 8}}}
	done := frame.Header{Op: frame.AtomicDone, Flags: frame.Last}
	b := make([]byte, 0, 4096)
	var wc [4]transport.WC
	round := func() {
		if err := s.qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		out := append(head.Append(done.Append(b[:0])), payload...)
		done.A++
		head.A++
		if _, err := syscall.Write(s.wire, out); err != nil {
			t.Fatal(err)
		}
		s.cq.Poll(wc[:])
		if _, err := syscall.Read(s.wire, b[:cap(b)]); err != nil {
			t.Fatal(err)
		}
	}
	round()
	before := binary.NativeEndian.Uint64(m.Bytes()[8:])
	require.Zero(t, testing.AllocsPerRun(100, round))
	require.Equal(t, before+101, binary.NativeEndian.Uint64(m.Bytes()[8:]))
	require.Equal(t, transport.StateReady, s.qp.State())
}
