package tcp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// rdma brings a connection of a rank to RDMA mode on both sides.
func (h *host) rdma(rank uint32) (*raw, made) {
	h.t.Helper()
	r := h.dial(rank)
	r.connect()
	m := h.nextMade()
	require.Equal(h.t, rank, m.rank)
	r.sayFrame(frame.Header{Op: frame.Ready, Flags: frame.Last}, nil)
	return r, m
}

// prey is what a hostile peer aims at.
type prey struct {
	open, readable, local, foreign, stale, words transport.MR
	staleKey                                     transport.Key
	// of a Read of ours: the peer may write it, when it is asked
	into transport.MR
}

const preySize = 128

func newPrey(h *host) *prey {
	other, err := h.dev.AllocPD()
	require.NoError(h.t, err)
	alloc := func(pd transport.PD, a transport.Access) transport.MR {
		mr, err := pd.Alloc(preySize, a)
		require.NoError(h.t, err)
		return mr
	}
	p := &prey{open: alloc(h.pd, transport.RemoteWrite), readable: alloc(h.pd, transport.RemoteRead),
		local: alloc(h.pd, transport.LocalWrite), foreign: alloc(other,
			transport.RemoteWrite|transport.RemoteRead)}
	p.into = alloc(h.pd, transport.LocalWrite)
	p.words = alloc(h.pd, transport.RemoteAtomic)
	p.stale = alloc(h.pd, transport.RemoteWrite|transport.RemoteRead)
	p.staleKey = p.stale.Key()
	require.NoError(h.t, p.stale.Deregister())
	p.stale = alloc(h.pd, transport.RemoteWrite|transport.RemoteRead) // in the same entry of the table
	require.Equal(h.t, verbs.Index(p.staleKey), verbs.Index(p.stale.Key()))
	return p
}

func (p *prey) untouched(t *testing.T) {
	t.Helper()
	for _, m := range []transport.MR{p.open, p.readable, p.local, p.foreign, p.stale, p.words} {
		require.Equal(t, make([]byte, preySize), m.Bytes(), "memory was written")
	}
}

func atomicRequest(number uint64, key transport.Key, off, operand uint64) (frame.Header, []byte) {
	b := slices.Concat(le64(uint64(key)), le64(off), le64(operand))
	return frame.Header{Op: frame.Atomic, Flags: frame.Last, A: number}, b
}

func readRequest(number uint64, src, dst transport.Segment) (frame.Header, []byte) {
	b := make([]byte, 2*frame.SegmentSize)
	frame.PutSegment(b, src)
	frame.PutSegment(b[frame.SegmentSize:], dst)
	return frame.Header{Op: frame.ReadRequest, Flags: frame.Last, A: number, B: 1<<32 | 1}, b
}

// A peer that breaks a rule, or reaches for what is not its own, ends its own queue pair and nothing else:
// both sides hear the cause, no byte is written, the Recv that was posted completes once, and another queue
// pair of the device goes on.
func TestViolation_EndsItsQueuePairAlone(t *testing.T) {
	data := []byte("0123456789abcdef")
	tests := []violationTest{
		{name: "unknown key", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: 0xfffff}, data)
		}, cause: transport.ErrAccess,
			text: "Write from the peer: access refused: no region has the key 0xfffff",
			code: frame.ReasonAccess},
		{name: "key with one bit wrong", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.open.Key()) ^ 1<<63}, data)
		}, cause: transport.ErrAccess, text: "no region has the key", code: frame.ReasonAccess},
		{name: "key of another domain", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.foreign.Key())}, data)
		}, cause: transport.ErrAccess, text: "is of another protection domain", code: frame.ReasonAccess},
		{name: "stale key", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.staleKey)}, data)
		}, cause: transport.ErrAccess, text: "no region has the key", code: frame.ReasonAccess},
		{name: "no right to write", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.readable.Key())}, data)
		}, cause: transport.ErrAccess, text: "has rights", code: frame.ReasonAccess},
		{name: "no right for peers at all", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.local.Key())}, data)
		}, cause: transport.ErrAccess, text: "has rights", code: frame.ReasonAccess},
		{name: "beyond the end", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.open.Key()), B: preySize - 15}, data)
		}, cause: transport.ErrAccess, text: "16 bytes at 113 of the region", code: frame.ReasonAccess},
		{name: "offset that wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.open.Key()), B: 1<<64 - 8}, data)
		}, cause: transport.ErrAccess, text: "16 bytes at 18446744073709551608 of the region",
			code: frame.ReasonAccess},
		{name: "no bytes beyond the end", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.open.Key()), B: preySize + 1}, nil)
		}, cause: transport.ErrAccess, text: "0 bytes at 129 of the region", code: frame.ReasonAccess},
		{name: "Read without the right", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(5, transport.Segment{Key: p.open.Key(), Length: 8},
				transport.Segment{Length: 8}))
		}, cause: transport.ErrAccess, text: "Read 5 from the peer: access refused: the region of key",
			code: frame.ReasonAccess, read: 6},
		{name: "Read of another domain", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.foreign.Key(), Length: 8},
				transport.Segment{Length: 8}))
		}, cause: transport.ErrAccess, text: "is of another protection domain", code: frame.ReasonAccess,
			read: 1},
		{name: "Read that wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.readable.Key(), Offset: 8,
				Length: 1<<64 - 8}, transport.Segment{Length: 8}))
		}, cause: transport.ErrAccess, text: "18446744073709551608 bytes at 8 of the region",
			code: frame.ReasonAccess, read: 1},
		{name: "Read of two lengths", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.readable.Key(), Length: 8},
				transport.Segment{Length: 9}))
		}, cause: transport.ErrProtocol, text: "a Read of 8 bytes into 9", code: frame.ReasonProtocol},
		{name: "Read into more than there can be", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.readable.Key(), Length: 8},
				transport.Segment{Length: 1<<64 - 1}))
		}, cause: transport.ErrProtocol, text: "a Read into a segment of 18446744073709551615 bytes",
			code: frame.ReasonProtocol},
		{name: "Read into a place that cannot be", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.readable.Key(), Length: 8},
				transport.Segment{Offset: 1 << 48, Length: 8}))
		}, cause: transport.ErrProtocol, text: "a Read into a segment at 281474976710656, which is not possible",
			code: frame.ReasonProtocol},
		{name: "Read of no segments", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.ReadRequest}, nil)
		}, cause: transport.ErrProtocol, text: "a Read of 0 into 0 segments", code: frame.ReasonProtocol},
		{name: "Read of more segments than it holds", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.ReadRequest, B: 8<<32 | 8}, make([]byte, 15*frame.SegmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 8 into 8 segments, 360 bytes of them",
			code: frame.ReasonProtocol},
		{name: "Read of too many sources", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.ReadRequest, B: 9<<32 | 1}, make([]byte, 10*frame.SegmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 9 into 1 segments", code: frame.ReasonProtocol},
		{name: "Read into too many destinations", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.ReadRequest, B: 1<<32 | 9}, make([]byte, 10*frame.SegmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 1 into 9 segments", code: frame.ReasonProtocol},
		{name: "Read of segments whose number wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.ReadRequest, B: 1<<39 | 1}, make([]byte, frame.SegmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 128 into 1 segments", code: frame.ReasonProtocol},
		{name: "Read over a lane that cannot be", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.ReadRequest, B: 65537<<40 | 1<<32 | 1},
				make([]byte, 2*frame.SegmentSize))
		}, cause: transport.ErrProtocol, text: "a Read over lane 65537, which is not possible",
			code: frame.ReasonProtocol},
		{name: "too many Reads", does: func(h *host, m made, r *raw, p *prey) {
			var b []byte
			for i := range uint64(h.depth + 1) {
				head, payload := readRequest(i, transport.Segment{Key: p.readable.Key(), Length: 8},
					transport.Segment{Length: 8})
				head.Length = len(payload)
				b = append(head.Append(b), payload...)
			}
			r.say(b)
		}, cause: transport.ErrProtocol, text: "more Reads and Atomics outstanding than agreed: 64", code: frame.ReasonReads},
		{name: "Send without Recv", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last}, data)
			r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last, A: 1}, data)
		}, cause: transport.ErrProtocol, text: "a message of the peer found no Recv posted",
			code: frame.ReasonNoRecv},
		{name: "immediate without Recv", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Immediate, Flags: frame.Last}, nil)
			r.sayFrame(frame.Header{Op: frame.Immediate, Flags: frame.Last, A: 1}, nil)
		}, cause: transport.ErrProtocol, text: "a message of the peer found no Recv posted",
			code: frame.ReasonNoRecv},
		{name: "immediate of more than 32 bits", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Immediate, Flags: frame.Last, B: 1 << 32}, nil)
		}, cause: transport.ErrProtocol, text: "which has more than 32 bits", code: frame.ReasonProtocol},
		{name: "Send longer than the Recv", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last}, make([]byte, recvSize+1))
		}, cause: transport.ErrProtocol, text: "longer than the posted Recv of 64 bytes",
			code: frame.ReasonTooLong},
		{name: "Send longer than the Recv, in pieces", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Send}, make([]byte, recvSize))
			r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last, B: recvSize}, []byte{1})
		}, cause: transport.ErrProtocol, text: "longer than the posted Recv of 64 bytes",
			code: frame.ReasonTooLong},
		{name: "Send out of its turn", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last, A: 1}, data)
		}, cause: transport.ErrProtocol, text: "Send 1 at 0 where 0 at 0 is due", code: frame.ReasonProtocol},
		{name: "Send with a gap", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Send}, data)
			r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last, B: 17}, data)
		}, cause: transport.ErrProtocol, text: "Send 0 at 17 where 0 at 16 is due", code: frame.ReasonProtocol},
		{name: "immediate in the middle of a Send", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Send}, data)
			r.sayFrame(frame.Header{Op: frame.Immediate, Flags: frame.Last}, nil)
		}, cause: transport.ErrProtocol, text: "message 0 where 0 at 16 is due", code: frame.ReasonProtocol},
		{name: "data of a Read that never was", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.local.Key())}, data)
		}, cause: transport.ErrProtocol, text: "data of a Read that was not requested",
			code: frame.ReasonProtocol},
		{name: "end of another Read", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.into)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.into.Key()),
				B: frame.Placement(0, 1)}, make([]byte, preySize))
		}, cause: transport.ErrProtocol, text: "a Write of Read 0, flags 0x1, immediate 1, which is not what is due",
			code: frame.ReasonProtocol},
		{name: "last Write of a Read that says nothing", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.into)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, A: uint64(p.into.Key())}, make([]byte, preySize))
		}, cause: transport.ErrProtocol, text: "a Write of Read 0, flags 0x0, immediate 0, which is not what is due",
			code: frame.ReasonProtocol},
		{name: "immediate before the last Write of a Read", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, A: uint64(p.local.Key()), B: frame.Placement(0, 1)}, data)
		}, cause: transport.ErrProtocol, text: "a Write of Read 0, flags 0x0, immediate 1, which is not what is due",
			code: frame.ReasonProtocol},
		{name: "data of a Read for another place", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.local.Key()), B: 8}, data)
		}, cause: transport.ErrProtocol, text: "which is not what is due", code: frame.ReasonProtocol},
		{name: "data of a Read for another region", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.open.Key())}, data)
		}, cause: transport.ErrProtocol, text: "which is not what is due", code: frame.ReasonProtocol},
		{name: "more data than the Read asked for", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.local.Key())},
				make([]byte, preySize+1))
		}, cause: transport.ErrProtocol, text: "129 bytes of a Read for", code: frame.ReasonProtocol},
		{name: "end of a Read before its data", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.local.Key())}, data)
		}, cause: transport.ErrProtocol, text: "a Write of Read 0, flags 0x1, immediate 0, which is not what is due",
			code: frame.ReasonProtocol},
		{name: "frame longer than the limit", does: func(h *host, m made, r *raw, p *prey) {
			r.say(frame.Header{Length: frame.MaxPayload + 1, Op: frame.Write, A: uint64(p.open.Key())}.Append(nil))
		}, cause: transport.ErrProtocol, text: "Write of 131073 bytes, at most 131072", code: frame.ReasonProtocol},
		{name: "frame of 4 GiB", does: func(h *host, m made, r *raw, p *prey) {
			r.say(frame.Header{Length: 1<<32 - 1, Op: frame.Terminate}.Append(nil))
		}, cause: transport.ErrProtocol, text: "Terminate of 4294967295 bytes, at most 384",
			code: frame.ReasonProtocol},
		{name: "payload where there is none", does: func(h *host, m made, r *raw, p *prey) {
			r.say(frame.Header{Length: 1, Op: frame.Immediate}.Append(nil))
		}, cause: transport.ErrProtocol, text: "Immediate of 1 bytes, at most 0", code: frame.ReasonProtocol},
		{name: "unknown opcode", does: func(h *host, m made, r *raw, p *prey) {
			r.say(frame.Header{Op: 77, Flags: frame.Last}.Append(nil))
		}, cause: transport.ErrProtocol, text: "frame type 77 with flags 0x1", code: frame.ReasonProtocol},
		{name: "unknown flag", does: func(h *host, m made, r *raw, p *prey) {
			r.say(frame.Header{Op: frame.Close, Flags: 0x80}.Append(nil))
		}, cause: transport.ErrProtocol, text: "Close with flags 0x80", code: frame.ReasonProtocol},
		{name: "Ready a second time", does: func(h *host, m made, r *raw, p *prey) {
			r.say(frame.Header{Op: frame.Ready}.Append(nil))
		}, cause: transport.ErrProtocol, text: "Ready a second time", code: frame.ReasonProtocol},
		{name: "Send after Close", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Close, Flags: frame.Last}, nil)
			r.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last}, data)
		}, cause: transport.ErrProtocol, text: "Send after Close", code: frame.ReasonProtocol},
		{name: "Close after Close", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Close, Flags: frame.Last}, nil)
			r.sayFrame(frame.Header{Op: frame.Close, Flags: frame.Last}, nil)
		}, cause: transport.ErrProtocol, text: "Close after Close", code: frame.ReasonProtocol},
		{name: "Close with a Read outstanding", does: func(h *host, m made, r *raw, p *prey) {
			head, payload := readRequest(0, transport.Segment{Key: p.readable.Key(), Length: 8},
				transport.Segment{Length: 8})
			head.Length = len(payload)
			r.say(frame.Header{Op: frame.Close, Flags: frame.Last}.Append(append(head.Append(nil), payload...)))
		}, cause: transport.ErrProtocol, text: "Close before its Reads were complete", code: frame.ReasonProtocol},
	}
	tests = append(tests, []violationTest{
		{name: "Atomic of an unknown key", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(5, 0xfffff, 0, 1))
		}, cause: transport.ErrAccess,
			text: "Atomic 5 from the peer: access refused: no region has the key 0xfffff",
			code: frame.ReasonAccess, read: 6},
		{name: "Atomic without the right", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, p.open.Key(), 0, 1))
		}, cause: transport.ErrAccess, text: "has rights LocalWrite|RemoteWrite, not RemoteAtomic",
			code: frame.ReasonAccess, read: 1},
		{name: "Atomic of another domain", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, p.foreign.Key(), 0, 1))
		}, cause: transport.ErrAccess, text: "is of another protection domain", code: frame.ReasonAccess,
			read: 1},
		{name: "Atomic beyond the end", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, p.words.Key(), preySize-7, 1))
		}, cause: transport.ErrAccess, text: "8 bytes at 121 of the region", code: frame.ReasonAccess, read: 1},
		{name: "Atomic that wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, p.words.Key(), 1<<64-8, 1))
		}, cause: transport.ErrAccess, text: "8 bytes at 18446744073709551608 of the region",
			code: frame.ReasonAccess, read: 1},
		{name: "Atomic at an odd address", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, p.words.Key(), 12, 1))
		}, cause: transport.ErrAccess, text: "the address is not a multiple of 8", code: frame.ReasonAccess, read: 1},
		{name: "Atomic after a refused one", does: func(h *host, m made, r *raw, p *prey) {
			a, b := atomicRequest(0, 0xfffff, 0, 1)
			c, d := atomicRequest(1, p.words.Key(), 0, 1)
			a.Length, c.Length = len(b), len(d)
			r.say(append(c.Append(append(a.Append(nil), b...)), d...))
		}, cause: transport.ErrAccess, text: "no region has the key 0xfffff", code: frame.ReasonAccess, read: 1},
		{name: "Atomic that is too short", does: func(h *host, m made, r *raw, p *prey) {
			head, payload := atomicRequest(0, p.words.Key(), 0, 1)
			r.sayFrame(head, payload[:23])
		}, cause: transport.ErrProtocol, text: "an Atomic of 23 bytes",
			code: frame.ReasonProtocol},
		{name: "Atomic that is too long", does: func(h *host, m made, r *raw, p *prey) {
			r.say(frame.Header{Length: 25, Op: frame.Atomic}.Append(nil))
		}, cause: transport.ErrProtocol, text: "Atomic of 25 bytes, at most 24", code: frame.ReasonProtocol},
		{name: "too many Atomics", does: func(h *host, m made, r *raw, p *prey) {
			var b []byte
			for i := range uint64(h.depth + 1) {
				head, payload := atomicRequest(i, p.words.Key(), 0, 0)
				head.Length = len(payload)
				b = append(head.Append(b), payload...)
			}
			r.say(b)
		}, cause: transport.ErrProtocol, text: "more Reads and Atomics outstanding than agreed: 64", code: frame.ReasonReads},
		{name: "end of an Atomic that never was", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.AtomicDone, Flags: frame.Last, A: 3, B: 16}, nil)
		}, cause: transport.ErrProtocol, text: "end of Atomic 3, which is not what is due",
			code: frame.ReasonProtocol},
		{name: "end of another Atomic", does: func(h *host, m made, r *raw, p *prey) {
			h.adds(m, p.local)
			r.sayFrame(frame.Header{Op: frame.AtomicDone, Flags: frame.Last, A: 1, B: 16}, nil)
		}, cause: transport.ErrProtocol, text: "end of Atomic 1, which is not what is due",
			code: frame.ReasonProtocol},
		{name: "end of an Atomic for a Read", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(frame.Header{Op: frame.AtomicDone, Flags: frame.Last, B: 16}, nil)
		}, cause: transport.ErrProtocol, text: "end of Atomic 0, which is not what is due",
			code: frame.ReasonProtocol},
		{name: "data of a Read for an Atomic", does: func(h *host, m made, r *raw, p *prey) {
			h.adds(m, p.local)
			r.sayFrame(frame.Header{Op: frame.ReadWrite, Flags: frame.Last, A: uint64(p.local.Key())}, data[:8])
		}, cause: transport.ErrProtocol, text: "data of a Read that was not requested",
			code: frame.ReasonProtocol},
		{name: "Atomic after Close", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(frame.Header{Op: frame.Close, Flags: frame.Last}, nil)
			r.sayFrame(atomicRequest(0, p.words.Key(), 0, 1))
		}, cause: transport.ErrProtocol, text: "Atomic after Close", code: frame.ReasonProtocol},
		{name: "region that ends in the middle of a Write", does: func(h *host, m made, r *raw, p *prey) {
			gone, err := h.pd.Alloc(preySize, transport.RemoteWrite)
			require.NoError(h.t, err)
			r.say(append(frame.Header{Length: 16, Op: frame.Write, Flags: frame.Last,
				A: uint64(gone.Key())}.Append(nil), 0))
			h.until("the first byte", func() bool { return firstLink(m.qp).in.left == 15 })
			require.NoError(h.t, gone.Deregister())
			r.say(data[:15])
		}, cause: transport.ErrAccess, text: "was deregistered while the peer wrote it",
			code: frame.ReasonAccess},
	}...)
	leaksNone(t, func(t *testing.T) {
		w := newWitness(t)
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) { w.sees(t, test) })
		}
	})
}

// A peer that has more Reads outstanding than were negotiated is terminated, whatever the number.
func TestReads_R5_PeerThatExceedsTheDepthIsTerminated(t *testing.T) {
	leaksNone(t, func(t *testing.T) {
		for _, depth := range []int{1, 2, 8, message.MaxReads} {
			h := newHost(t, Options{})
			h.depth = depth
			p := newPrey(h)
			for _, more := range []int{0, 1} {
				r, m := h.rdma(uint32(1 + more))
				require.Equal(t, depth, m.qp.Query().PeerReads)
				var b []byte
				for i := range uint64(depth + more) {
					head, payload := readRequest(i, transport.Segment{Key: p.readable.Key(), Length: 8},
						transport.Segment{Length: 8})
					head.Length = len(payload)
					b = append(head.Append(b), payload...)
				}
				r.say(b)
				if more == 0 {
					h.until("the answers", func() bool { return m.qp.(*qp).answer.queue.Head == uint32(depth) })
					m.qp.Release()
					continue
				}
				h.until("the end", func() bool { return m.qp.State() == transport.StateError })
				require.ErrorContains(t, m.qp.Err(),
					fmt.Sprintf("more Reads and Atomics outstanding than agreed: %d", depth))
				frames := r.frames()
				require.Equal(t, uint64(frame.ReasonReads), frames[len(frames)-1].A)
			}
		}
	})
}

// violationTest is what a peer does wrong, and how that must end.
type violationTest struct {
	name  string
	does  func(h *host, m made, r *raw, p *prey)
	cause error
	text  string       // in the queue pair's error, and in the Terminate
	code  frame.Reason // of the Terminate
	read  uint64       // number of the Read or Atomic that it names, plus one
	early bool         // the peer has not sent Ready when it does it
}

// witness is another queue pair of the device, which must not suffer.
type witness struct {
	h        *host
	p        *prey
	well     *raw
	other    made
	sequence uint64
	in       transport.MR
}

func newWitness(t *testing.T) *witness {
	w := &witness{h: newHost(t, Options{})}
	w.p = newPrey(w.h)
	w.well, w.other = w.h.rdma(2)
	var err error
	w.in, err = w.h.pd.Alloc(recvSize, transport.LocalWrite)
	require.NoError(t, err)
	return w
}

// sees has a peer break a rule in the middle of a message of the other queue pair.
func (w *witness) sees(t *testing.T, test violationTest) {
	h, p := w.h, w.p
	var r *raw
	var m made
	if test.early {
		r = h.dial(1)
		r.connect()
		m = h.nextMade()
	} else {
		r, m = h.rdma(1)
	}
	r.t = t
	require.NoError(t, m.qp.PostRecv(&transport.RecvWR{ID: 1,
		Local: []transport.SGE{{MR: h.mr, Length: recvSize}}}))
	require.NoError(t, w.other.qp.PostRecv(&transport.RecvWR{ID: 2,
		Local: []transport.SGE{{MR: w.in, Length: recvSize}}}))
	h.wcs = nil
	want := []byte(fmt.Sprintf("%-16d", w.sequence))
	w.well.sayFrame(frame.Header{Op: frame.Send, A: w.sequence}, want[:7])
	test.does(h, m, r, p)
	h.until(test.name, func() bool { return m.qp.State() == transport.StateError })

	err := m.qp.Err()
	require.ErrorIs(t, err, test.cause)
	require.ErrorContains(t, err, "rank 1 at "+r.LocalAddr().String())
	require.ErrorContains(t, err, test.text)
	if frames := r.frames(); test.cause == transport.ErrPeerLost {
		require.Empty(t, frames, "nobody is there to be told")
	} else {
		require.NotEmpty(t, frames, "the peer is not told")
		last := frames[len(frames)-1]
		require.Equal(t, frame.Terminate, last.Op)
		require.Equal(t, test.code, frame.Reason(last.A), "%q", last.payload)
		require.Equal(t, test.read, last.B)
		require.Contains(t, string(last.payload), test.text)
	}
	recvs := 0
	for _, wc := range h.wcs {
		if wc.Status != transport.StatusSuccess {
			require.ErrorContains(t, wc.Err, "rank 1 at "+r.LocalAddr().String())
		}
		if wc.Op == transport.OpRecv {
			recvs++
		}
	}
	require.Equal(t, 1, recvs, "the posted Recv completes once")
	p.untouched(t)
	m.qp.Release()

	require.Equal(t, transport.StateReady, w.other.qp.State())
	w.well.sayFrame(frame.Header{Op: frame.Write, Flags: frame.Last, A: uint64(p.open.Key()), B: 32}, want)
	w.well.sayFrame(frame.Header{Op: frame.Send, Flags: frame.Last, A: w.sequence, B: 7}, want[7:])
	w.sequence++
	h.wcs = nil
	h.until("the other queue pair", func() bool { return len(h.wcs) > 0 })
	require.Equal(t, transport.WC{ID: 2, QP: w.other.qp.Num(), Op: transport.OpRecv, Bytes: 16}, h.wcs[0])
	require.Equal(t, string(want), string(w.in.Bytes()[:16]))
	require.Equal(t, string(want), string(p.open.Bytes()[32:48]))
	clear(p.open.Bytes())
	r.Close()
}

// reads posts a Read of preySize bytes on a queue pair and sends it.
func (h *host) reads(m made, into transport.MR) {
	h.t.Helper()
	// The queue pair sends nothing before it has seen Ready.
	h.until("Ready", func() bool { return !m.qp.(*qp).awaitingFirstFrame })
	require.NoError(h.t, m.qp.PostSend(&transport.SendWR{ID: 9, Op: transport.OpRead,
		Flags:  transport.FlagSignaled,
		Local:  []transport.SGE{{MR: into, Length: preySize}},
		Remote: []transport.Segment{{Key: 1, Length: preySize}}}))
}

// adds posts an Atomic on a queue pair and sends it.
func (h *host) adds(m made, into transport.MR) {
	h.t.Helper()
	h.until("Ready", func() bool { return !m.qp.(*qp).awaitingFirstFrame })
	require.NoError(h.t, m.qp.PostSend(&transport.SendWR{ID: 9, Op: transport.OpFetchAdd,
		Flags: transport.FlagSignaled, Operand: 1,
		Local:  []transport.SGE{{MR: into, Length: 8}},
		Remote: []transport.Segment{{Key: 1, Length: 8}}}))
}
