package tcp

import (
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

func TestSpec_Atomics(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	into, err := s.pd.Alloc(8, transport.LocalWrite)
	require.NoError(t, err)
	for operation, op := range map[uint64]transport.Opcode{1: transport.OpFetchAdd, 2: transport.OpCompareSwap} {
		s.heard(t)
		require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: op, Operand: 0x0102030405060708, Compare: 0x1112131415161718,
			Local: []transport.SGE{{MR: into, Length: 8}}, Remote: []transport.Segment{{Key: 0x21, Offset: 0x38, Length: 8}}}))
		frames := s.heard(t)
		f := frames[len(frames)-1]
		require.Equal(t, opAtomic, f.op)
		require.Equal(t, operation, f.b)
		fields(t, "Atomics", f.payload, map[string][]byte{"key": le64(0x21), "offset": le64(0x38), "operand": le64(0x0102030405060708),
			"what is compared": le64(0x1112131415161718)})
		s.says(t, header{op: opAtomicDone, flags: flagLast, a: f.a, b: 1<<63 + operation}.append(nil))
		require.Equal(t, 1<<63+operation, binary.NativeEndian.Uint64(into.Bytes()), "in the byte order of the host")
	}
}

// Between Atomics and Reads the order of the answers is that of the requests, whichever is done first at the responder.
func TestAtomic_AnswersAreInTheOrderOfTheRequests(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	m, err := s.pd.Alloc(64, transport.RemoteAtomic|transport.RemoteRead)
	require.NoError(t, err)
	var sent []byte
	add := func(h header, payload []byte) {
		h.length = len(payload)
		sent = append(h.append(sent), payload...)
	}
	add(atomicRequest(0, 1, m.Key(), 8, 1, 0))
	add(readRequest(1, transport.Segment{Key: m.Key(), Length: 16}, transport.Segment{Length: 16}))
	add(atomicRequest(2, 1, m.Key(), 8, 1, 0))
	add(atomicRequest(7, 2, m.Key(), 8, 9, 2))
	s.heard(t)
	s.says(t, sent)
	var ops []op
	var numbers []uint64
	for _, f := range s.heard(t) {
		ops = append(ops, f.op)
		if f.op != opReadWrite {
			numbers = append(numbers, f.a)
		}
	}
	require.Equal(t, []op{opAtomicDone, opReadWrite, opReadDone, opAtomicDone, opAtomicDone}, ops)
	require.Equal(t, []uint64{0, 1, 2, 7}, numbers)
	require.Equal(t, uint64(9), binary.NativeEndian.Uint64(m.Bytes()[8:]))
}

// An Atomic allocates nothing at either end.
func TestAllocations_Atomic(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	m, err := s.pd.Alloc(64, transport.RemoteAtomic)
	require.NoError(t, err)
	head, payload := atomicRequest(0, 1, m.Key(), 8, 1, 0)
	head.length = len(payload)
	asked := append(head.append(nil), payload...)
	wr := &transport.SendWR{Op: transport.OpFetchAdd, Operand: 1, Local: []transport.SGE{{MR: m, Length: 8}},
		Remote: []transport.Segment{{Key: 1, Length: 8}}}
	done := header{op: opAtomicDone, flags: flagLast}
	b := make([]byte, 0, 4096)
	var wc [4]transport.WC
	round := func() {
		if err := s.qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(asked[8:], done.a)
		out := append(done.append(b[:0]), asked...)
		done.a++
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
