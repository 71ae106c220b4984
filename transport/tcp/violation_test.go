package tcp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// rdma brings a connection of a rank to RDMA mode on both sides.
func (h *host) rdma(rank uint32) (*raw, made) {
	h.t.Helper()
	r := h.dial(rank)
	r.connect()
	m := h.nextMade()
	require.Equal(h.t, rank, m.rank)
	r.sayFrame(header{op: opReady, flags: flagLast}, nil)
	return r, m
}

// prey is what a hostile peer aims at.
type prey struct {
	open, readable, local, foreign, stale, words transport.MR
	staleKey                                     transport.Key
	into                                         transport.MR  // of a Read of ours: the peer may write it, when it is asked
	window                                       transport.Key // of words, bound to another queue pair
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
		local: alloc(h.pd, transport.LocalWrite), foreign: alloc(other, transport.RemoteWrite|transport.RemoteRead)}
	p.words = alloc(h.pd, transport.RemoteAtomic|transport.BindWindow)
	p.into = alloc(h.pd, transport.LocalWrite)
	p.stale = alloc(h.pd, transport.RemoteWrite|transport.RemoteRead)
	p.staleKey = p.stale.Key()
	require.NoError(h.t, p.stale.Deregister())
	p.stale = alloc(h.pd, transport.RemoteWrite|transport.RemoteRead) // in the same entry of the table
	require.Equal(h.t, uint64(p.staleKey)&indexMask, uint64(p.stale.Key())&indexMask)
	return p
}

func (p *prey) untouched(t *testing.T) {
	t.Helper()
	for _, m := range []transport.MR{p.open, p.readable, p.local, p.foreign, p.stale, p.words} {
		require.Equal(t, make([]byte, preySize), m.Bytes(), "memory was written")
	}
}

// bind binds a window to the words.
func (p *prey) bind(h *host, q transport.QP) transport.Key {
	h.t.Helper()
	w, err := h.pd.AllocMW()
	require.NoError(h.t, err)
	require.NoError(h.t, q.PostSend(&transport.SendWR{Op: transport.OpBind, Bind: &transport.Bind{Window: w, MR: p.words, Length: preySize,
		Access: transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic}}))
	return w.Key()
}

func atomicRequest(number, operation uint64, key transport.Key, off, operand, compare uint64) (header, []byte) {
	b := slices.Concat(le64(uint64(key)), le64(off), le64(operand), le64(compare))
	return header{op: opAtomic, flags: flagLast, a: number, b: operation}, b
}

func readRequest(number uint64, src, dst transport.Segment) (header, []byte) {
	b := make([]byte, 2*segmentSize)
	putSegment(b, src)
	putSegment(b[segmentSize:], dst)
	return header{op: opReadRequest, flags: flagLast, a: number, b: 1<<32 | 1}, b
}

// A peer that breaks a rule, or reaches for what is not its own, ends its own queue pair and nothing else: both sides hear the cause, no
// byte is written, the Recv that was posted completes once, and another queue pair of the device goes on.
func TestViolation_EndsItsQueuePairAlone(t *testing.T) {
	data := []byte("0123456789abcdef")
	tests := []violationTest{
		{name: "unknown key", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: 0xfffff}, data)
		}, cause: transport.ErrAccess, text: "Write from the peer: access refused: no region has the key 0xfffff", code: terminateAccess},
		{name: "key with one bit wrong", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.open.Key()) ^ 1<<63}, data)
		}, cause: transport.ErrAccess, text: "no region has the key", code: terminateAccess},
		{name: "key of another domain", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.foreign.Key())}, data)
		}, cause: transport.ErrAccess, text: "is of another protection domain", code: terminateAccess},
		{name: "stale key", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.staleKey)}, data)
		}, cause: transport.ErrAccess, text: "no region has the key", code: terminateAccess},
		{name: "no right to write", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.readable.Key())}, data)
		}, cause: transport.ErrAccess, text: "has rights", code: terminateAccess},
		{name: "no right for peers at all", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.local.Key())}, data)
		}, cause: transport.ErrAccess, text: "has rights", code: terminateAccess},
		{name: "beyond the end", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.open.Key()), b: preySize - 15}, data)
		}, cause: transport.ErrAccess, text: "16 bytes at 113 of the region", code: terminateAccess},
		{name: "offset that wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.open.Key()), b: 1<<64 - 8}, data)
		}, cause: transport.ErrAccess, text: "16 bytes at 18446744073709551608 of the region", code: terminateAccess},
		{name: "no bytes beyond the end", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.open.Key()), b: preySize + 1}, nil)
		}, cause: transport.ErrAccess, text: "0 bytes at 129 of the region", code: terminateAccess},
		{name: "Read without the right", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(5, transport.Segment{Key: p.open.Key(), Length: 8}, transport.Segment{Length: 8}))
		}, cause: transport.ErrAccess, text: "Read 5 from the peer: access refused: the region of key", code: terminateAccess, read: 6},
		{name: "Read of another domain", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.foreign.Key(), Length: 8}, transport.Segment{Length: 8}))
		}, cause: transport.ErrAccess, text: "is of another protection domain", code: terminateAccess, read: 1},
		{name: "Read that wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.readable.Key(), Offset: 8, Length: 1<<64 - 8}, transport.Segment{Length: 8}))
		}, cause: transport.ErrAccess, text: "18446744073709551608 bytes at 8 of the region", code: terminateAccess, read: 1},
		{name: "Read of two lengths", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 9}))
		}, cause: transport.ErrProtocol, text: "a Read of 8 bytes into 9", code: terminateProto},
		{name: "Read into more than there can be", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(readRequest(0, transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 1<<64 - 1}))
		}, cause: transport.ErrProtocol, text: "a Read into a segment of 18446744073709551615 bytes", code: terminateProto},
		{name: "Read of no segments", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opReadRequest}, nil)
		}, cause: transport.ErrProtocol, text: "a Read of 0 into 0 segments", code: terminateProto},
		{name: "Read of more segments than it holds", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opReadRequest, b: 8<<32 | 8}, make([]byte, 15*segmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 8 into 8 segments, 360 bytes of them", code: terminateProto},
		{name: "Read of too many sources", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opReadRequest, b: 9<<32 | 1}, make([]byte, 10*segmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 9 into 1 segments", code: terminateProto},
		{name: "Read into too many destinations", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opReadRequest, b: 1<<32 | 9}, make([]byte, 10*segmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 1 into 9 segments", code: terminateProto},
		{name: "Read of segments whose number wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opReadRequest, b: 1<<63 | 1}, make([]byte, segmentSize))
		}, cause: transport.ErrProtocol, text: "a Read of 2147483648 into 1 segments", code: terminateProto},
		{name: "too many Reads", does: func(h *host, m made, r *raw, p *prey) {
			var b []byte
			for i := range uint64(maxReads + 1) {
				head, payload := readRequest(i, transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 8})
				head.length = len(payload)
				b = append(head.append(b), payload...)
			}
			r.say(b)
		}, cause: transport.ErrProtocol, text: "more than 64 Reads outstanding", code: terminateReads},
		{name: "Send without Recv", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend, flags: flagLast}, data)
			r.sayFrame(header{op: opSend, flags: flagLast, a: 1}, data)
		}, cause: transport.ErrProtocol, text: "a message of the peer found no Recv posted", code: terminateNoRecv},
		{name: "immediate without Recv", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opImmediate, flags: flagLast}, nil)
			r.sayFrame(header{op: opImmediate, flags: flagLast, a: 1}, nil)
		}, cause: transport.ErrProtocol, text: "an immediate of the peer found no Recv posted", code: terminateNoRecv},
		{name: "Send longer than the Recv", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend, flags: flagLast}, make([]byte, recvSize+1))
		}, cause: transport.ErrProtocol, text: "longer than the posted Recv of 64 bytes", code: terminateTooLong},
		{name: "Send longer than the Recv, in pieces", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend}, make([]byte, recvSize))
			r.sayFrame(header{op: opSend, flags: flagLast, b: recvSize}, []byte{1})
		}, cause: transport.ErrProtocol, text: "longer than the posted Recv of 64 bytes", code: terminateTooLong},
		{name: "Send out of its turn", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend, flags: flagLast, a: 1}, data)
		}, cause: transport.ErrProtocol, text: "Send 1 at 0 where 0 at 0 is due", code: terminateProto},
		{name: "Send with a gap", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend}, data)
			r.sayFrame(header{op: opSend, flags: flagLast, b: 17}, data)
		}, cause: transport.ErrProtocol, text: "Send 0 at 17 where 0 at 16 is due", code: terminateProto},
		{name: "immediate in the middle of a Send", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend}, data)
			r.sayFrame(header{op: opImmediate, flags: flagLast}, nil)
		}, cause: transport.ErrProtocol, text: "message 0 where 0 at 16 is due", code: terminateProto},
		{name: "data of a Read that never was", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.local.Key())}, data)
		}, cause: transport.ErrProtocol, text: "data of a Read that nobody has asked for", code: terminateProto},
		{name: "end of a Read that never was", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opReadDone, flags: flagLast, a: 3, b: 16}, nil)
		}, cause: transport.ErrProtocol, text: "end of Read 3, 16 bytes, which is not what is due", code: terminateProto},
		{name: "data of a Read for another place", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.local.Key()), b: 8}, data)
		}, cause: transport.ErrProtocol, text: "which is not what is due", code: terminateProto},
		{name: "data of a Read for another region", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.open.Key())}, data)
		}, cause: transport.ErrProtocol, text: "which is not what is due", code: terminateProto},
		{name: "more data than the Read asked for", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.local.Key())}, make([]byte, preySize+1))
		}, cause: transport.ErrProtocol, text: "129 bytes of a Read for", code: terminateProto},
		{name: "end of a Read before its data", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(header{op: opReadDone, flags: flagLast, b: preySize}, nil)
		}, cause: transport.ErrProtocol, text: "end of Read 0, 128 bytes, which is not what is due", code: terminateProto},
		{name: "frame longer than the limit", does: func(h *host, m made, r *raw, p *prey) {
			r.say(header{length: framePayload + 1, op: opWrite, a: uint64(p.open.Key())}.append(nil))
		}, cause: transport.ErrProtocol, text: "Write of 131073 bytes, at most 131072", code: terminateProto},
		{name: "frame of 4 GiB", does: func(h *host, m made, r *raw, p *prey) {
			r.say(header{length: 1<<32 - 1, op: opTerminate}.append(nil))
		}, cause: transport.ErrProtocol, text: "Terminate of 4294967295 bytes, at most 384", code: terminateProto},
		{name: "payload where there is none", does: func(h *host, m made, r *raw, p *prey) {
			r.say(header{length: 1, op: opImmediate}.append(nil))
		}, cause: transport.ErrProtocol, text: "Immediate of 1 bytes, at most 0", code: terminateProto},
		{name: "unknown opcode", does: func(h *host, m made, r *raw, p *prey) {
			r.say(header{op: 77, flags: flagLast}.append(nil))
		}, cause: transport.ErrProtocol, text: "frame type 77 with flags 0x1", code: terminateProto},
		{name: "unknown flag", does: func(h *host, m made, r *raw, p *prey) {
			r.say(header{op: opClose, flags: 0x80}.append(nil))
		}, cause: transport.ErrProtocol, text: "Close with flags 0x80", code: terminateProto},
		{name: "Ready a second time", does: func(h *host, m made, r *raw, p *prey) {
			r.say(header{op: opReady}.append(nil))
		}, cause: transport.ErrProtocol, text: "Ready a second time", code: terminateProto},
		{name: "Send behind Close", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opClose, flags: flagLast}, nil)
			r.sayFrame(header{op: opSend, flags: flagLast}, data)
		}, cause: transport.ErrProtocol, text: "Send behind Close", code: terminateProto},
		{name: "Close behind Close", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opClose, flags: flagLast}, nil)
			r.sayFrame(header{op: opClose, flags: flagLast}, nil)
		}, cause: transport.ErrProtocol, text: "Close behind Close", code: terminateProto},
		{name: "Close with a Read outstanding", does: func(h *host, m made, r *raw, p *prey) {
			head, payload := readRequest(0, transport.Segment{Key: p.readable.Key(), Length: 8}, transport.Segment{Length: 8})
			head.length = len(payload)
			r.say(header{op: opClose, flags: flagLast}.append(append(head.append(nil), payload...)))
		}, cause: transport.ErrProtocol, text: "Close before its Reads were complete", code: terminateProto},
	}
	tests = append(tests, []violationTest{
		{name: "Atomic of an unknown key", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(5, 1, 0xfffff, 0, 1, 0))
		}, cause: transport.ErrAccess, text: "Atomic 5 from the peer: access refused: no region has the key 0xfffff", code: terminateAccess, read: 6},
		{name: "Atomic without the right", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, 2, p.open.Key(), 0, 1, 0))
		}, cause: transport.ErrAccess, text: "has rights LocalWrite|RemoteWrite, not RemoteAtomic", code: terminateAccess, read: 1},
		{name: "Atomic of another domain", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, 1, p.foreign.Key(), 0, 1, 0))
		}, cause: transport.ErrAccess, text: "is of another protection domain", code: terminateAccess, read: 1},
		{name: "Atomic beyond the end", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, 1, p.words.Key(), preySize-7, 1, 0))
		}, cause: transport.ErrAccess, text: "8 bytes at 121 of the region", code: terminateAccess, read: 1},
		{name: "Atomic that wraps around", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, 1, p.words.Key(), 1<<64-8, 1, 0))
		}, cause: transport.ErrAccess, text: "8 bytes at 18446744073709551608 of the region", code: terminateAccess, read: 1},
		{name: "Atomic at an odd address", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, 2, p.words.Key(), 12, 1, 0))
		}, cause: transport.ErrAccess, text: "which is at no multiple of 8", code: terminateAccess, read: 1},
		{name: "Atomic behind a refused one", does: func(h *host, m made, r *raw, p *prey) {
			a, b := atomicRequest(0, 1, 0xfffff, 0, 1, 0)
			c, d := atomicRequest(1, 1, p.words.Key(), 0, 1, 0)
			a.length, c.length = len(b), len(d)
			r.say(append(c.append(append(a.append(nil), b...)), d...))
		}, cause: transport.ErrAccess, text: "no region has the key 0xfffff", code: terminateAccess, read: 1},
		{name: "Atomic of an unknown operation", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, 3, p.words.Key(), 0, 1, 0))
		}, cause: transport.ErrProtocol, text: "an Atomic of operation 3, 32 bytes of it", code: terminateProto},
		{name: "Atomic that is too short", does: func(h *host, m made, r *raw, p *prey) {
			head, payload := atomicRequest(0, 1, p.words.Key(), 0, 1, 0)
			r.sayFrame(head, payload[:31])
		}, cause: transport.ErrProtocol, text: "an Atomic of operation 1, 31 bytes of it", code: terminateProto},
		{name: "Atomic that is too long", does: func(h *host, m made, r *raw, p *prey) {
			r.say(header{length: 33, op: opAtomic, b: 1}.append(nil))
		}, cause: transport.ErrProtocol, text: "Atomic of 33 bytes, at most 32", code: terminateProto},
		{name: "too many Atomics", does: func(h *host, m made, r *raw, p *prey) {
			var b []byte
			for i := range uint64(maxReads + 1) {
				head, payload := atomicRequest(i, 1, p.words.Key(), 0, 0, 0)
				head.length = len(payload)
				b = append(head.append(b), payload...)
			}
			r.say(b)
		}, cause: transport.ErrProtocol, text: "more than 64 Reads outstanding", code: terminateReads},
		{name: "end of an Atomic that never was", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opAtomicDone, flags: flagLast, a: 3, b: 16}, nil)
		}, cause: transport.ErrProtocol, text: "end of Atomic 3, which is not what is due", code: terminateProto},
		{name: "end of another Atomic", does: func(h *host, m made, r *raw, p *prey) {
			h.adds(m, p.local)
			r.sayFrame(header{op: opAtomicDone, flags: flagLast, a: 1, b: 16}, nil)
		}, cause: transport.ErrProtocol, text: "end of Atomic 1, which is not what is due", code: terminateProto},
		{name: "end of an Atomic for a Read", does: func(h *host, m made, r *raw, p *prey) {
			h.reads(m, p.local)
			r.sayFrame(header{op: opAtomicDone, flags: flagLast, b: 16}, nil)
		}, cause: transport.ErrProtocol, text: "end of Atomic 0, which is not what is due", code: terminateProto},
		{name: "end of a Read for an Atomic", does: func(h *host, m made, r *raw, p *prey) {
			h.adds(m, p.local)
			r.sayFrame(header{op: opReadDone, flags: flagLast, b: 8}, nil)
		}, cause: transport.ErrProtocol, text: "end of Read 0, 8 bytes, which is not what is due", code: terminateProto},
		{name: "data of a Read for an Atomic", does: func(h *host, m made, r *raw, p *prey) {
			h.adds(m, p.local)
			r.sayFrame(header{op: opReadWrite, flags: flagLast, a: uint64(p.local.Key())}, data[:8])
		}, cause: transport.ErrProtocol, text: "data of a Read that nobody has asked for", code: terminateProto},
		{name: "Atomic behind Close", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opClose, flags: flagLast}, nil)
			r.sayFrame(atomicRequest(0, 1, p.words.Key(), 0, 1, 0))
		}, cause: transport.ErrProtocol, text: "Atomic behind Close", code: terminateProto},
		{name: "Write through another queue pair's window", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.window)}, data)
		}, cause: transport.ErrAccess, text: "is not bound to this queue pair", code: terminateAccess},
		{name: "Atomic through another queue pair's window", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(atomicRequest(0, 1, p.window, 0, 1, 0))
		}, cause: transport.ErrAccess, text: "is not bound to this queue pair", code: terminateAccess, read: 1},
		{name: "Write through a window that is invalid", does: func(h *host, m made, r *raw, p *prey) {
			key := p.bind(h, m.qp)
			require.NoError(h.t, m.qp.PostSend(&transport.SendWR{Op: transport.OpInvalidate, Key: key}))
			r.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(key)}, data)
		}, cause: transport.ErrAccess, text: "no region has the key", code: terminateAccess},
		{name: "window that ends in the middle of a Write", does: func(h *host, m made, r *raw, p *prey) {
			key := p.bind(h, m.qp)
			r.say(append(header{length: 16, op: opWrite, flags: flagLast, a: uint64(key)}.append(nil), 0)) // what is written is what was there
			h.until("the first byte", func() bool { return m.qp.(*qp).in.left == 15 })
			require.NoError(h.t, m.qp.PostSend(&transport.SendWR{Op: transport.OpInvalidate, Key: key}))
			r.say(data[:15])
		}, cause: transport.ErrAccess, text: "was deregistered while the peer wrote it", code: terminateAccess},
		{name: "Invalidate of an unknown key", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opInvalidate, flags: flagLast, b: 0xfffff}, nil)
		}, cause: transport.ErrAccess, text: "the peer invalidates the key 0xfffff, of no window", code: terminateKey},
		{name: "Invalidate of a region", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opInvalidate, flags: flagLast, b: uint64(p.open.Key())}, nil)
		}, cause: transport.ErrAccess, text: "of no window that is bound to this queue pair", code: terminateKey},
		{name: "Invalidate of another queue pair's window", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opInvalidate, flags: flagLast, b: uint64(p.window)}, nil)
		}, cause: transport.ErrAccess, text: "of no window that is bound to this queue pair", code: terminateKey},
		{name: "Invalidate a second time", does: func(h *host, m made, r *raw, p *prey) {
			require.NoError(h.t, m.qp.PostRecv(&transport.RecvWR{ID: 2}))
			key := uint64(p.bind(h, m.qp))
			r.sayFrame(header{op: opInvalidate, flags: flagLast, b: key}, nil)
			h.until("the first", func() bool { return len(h.wcs) == 1 })
			require.Equal(h.t, transport.Key(key), h.wcs[0].Key)
			h.wcs = nil
			r.sayFrame(header{op: opInvalidate, flags: flagLast, a: 1, b: key}, nil)
		}, cause: transport.ErrAccess, text: "of no window that is bound to this queue pair", code: terminateKey},
		{name: "Invalidate without Recv", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opSend, flags: flagLast}, data)
			r.sayFrame(header{op: opInvalidate, flags: flagLast, a: 1, b: uint64(p.bind(h, m.qp))}, nil)
		}, cause: transport.ErrProtocol, text: "a message of the peer found no Recv posted", code: terminateNoRecv},
		{name: "Invalidate out of its turn", does: func(h *host, m made, r *raw, p *prey) {
			r.sayFrame(header{op: opInvalidate, flags: flagLast, a: 1, b: uint64(p.bind(h, m.qp))}, nil)
		}, cause: transport.ErrProtocol, text: "message 1 where 0 is due", code: terminateProto},
	}...)
	leaksNone(t, func(t *testing.T) {
		w := newWitness(t)
		w.p.window = w.p.bind(w.h, w.other.qp)
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) { w.sees(t, test) })
		}
	})
}

// violationTest is what a peer does wrong, and how that must end.
type violationTest struct {
	name  string
	does  func(h *host, m made, r *raw, p *prey)
	cause error
	text  string    // in the queue pair's error, and in the Terminate
	code  terminate // of the Terminate
	read  uint64    // number of the Read that it names, plus one
	early bool      // the peer has not sent Ready when it does it
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
	require.NoError(t, m.qp.PostRecv(&transport.RecvWR{ID: 1, Local: []transport.SGE{{MR: h.mr, Length: recvSize}}}))
	require.NoError(t, w.other.qp.PostRecv(&transport.RecvWR{ID: 2, Local: []transport.SGE{{MR: w.in, Length: recvSize}}}))
	h.wcs = nil
	want := []byte(fmt.Sprintf("%-16d", w.sequence))
	w.well.sayFrame(header{op: opSend, a: w.sequence}, want[:7])
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
		require.Equal(t, opTerminate, last.op)
		require.Equal(t, test.code, terminate(last.a), "%q", last.payload)
		require.Equal(t, test.read, last.b)
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
	w.well.sayFrame(header{op: opWrite, flags: flagLast, a: uint64(p.open.Key()), b: 32}, want)
	w.well.sayFrame(header{op: opSend, flags: flagLast, a: w.sequence, b: 7}, want[7:])
	w.sequence++
	h.wcs = nil
	h.until("the other queue pair", func() bool { return len(h.wcs) > 0 })
	require.Equal(t, transport.WC{ID: 2, QP: w.other.qp.Num(), Op: transport.OpRecv, Bytes: 16}, h.wcs[0])
	require.Equal(t, string(want), string(w.in.Bytes()[:16]))
	require.Equal(t, string(want), string(p.open.Bytes()[32:48]))
	clear(p.open.Bytes())
}

// reads posts a Read of preySize bytes on a queue pair and sends it.
func (h *host) reads(m made, into transport.MR) {
	h.t.Helper()
	// The queue pair sends nothing before it has seen Ready.
	h.until("Ready", func() bool { return !m.qp.(*qp).quiet })
	require.NoError(h.t, m.qp.PostSend(&transport.SendWR{ID: 9, Op: transport.OpRead, Flags: transport.FlagSignaled,
		Local:  []transport.SGE{{MR: into, Length: preySize}},
		Remote: []transport.Segment{{Key: 1, Length: preySize}}}))
}

// adds posts an Atomic on a queue pair and sends it.
func (h *host) adds(m made, into transport.MR) {
	h.t.Helper()
	h.until("Ready", func() bool { return !m.qp.(*qp).quiet })
	require.NoError(h.t, m.qp.PostSend(&transport.SendWR{ID: 9, Op: transport.OpFetchAdd, Flags: transport.FlagSignaled, Operand: 1,
		Local:  []transport.SGE{{MR: into, Length: 8}},
		Remote: []transport.Segment{{Key: 1, Length: 8}}}))
}
