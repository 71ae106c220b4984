package verbstest

import (
	"bytes"
	"encoding/binary"

	"github.com/weft-mpi/weft/transport"
)

// delivers checks that the completion of a Recv implies that everything before it is placed.
func delivers(last transport.Opcode) func(*trial) {
	return func(t *trial) {
		a, b := t.pair(shape{})
		const writes, size = 12, 5000
		src, m := a.memory(writes*size, all), b.memory(writes*size, all)
		for round := range uint64(30) {
			fill(src.Bytes(), 1, round)
			for i := range writes {
				wr := without(write(0, src, m), transport.FlagSignaled)
				wr.Local[0], wr.Remote[0] = part(src, i*size, size), segment(m, i*size, size)
				t.must(a.qp.PostSend(wr))
			}
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: round}))
			t.must(a.qp.PostSend(&transport.SendWR{ID: round, Op: last, Flags: transport.FlagSignaled}))
			t.one(b, round, transport.OpRecv, a, b)
			t.must(check(m.Bytes(), 1, round))
			t.one(a, round, last, a, b)
		}
	}
}

var orderChecks = []Check{
	{"Order/TailOfAWriteIsPlacedLast", func(t *trial) {
		a, b := t.pair(shape{})
		const size = 100_000
		src, m := a.memory(size, all), b.memory(size, all)
		for round := range uint64(60) {
			n := []int{16, 24, 100, 4096, size}[round%5]
			fill(src.Bytes(), 1, round)
			word := src.Bytes()[n-8 : n]
			// the tail differs from the old contents in every byte but one
			binary.LittleEndian.PutUint64(word, ^round)
			clear(m.Bytes())
			wr := write(round, src, m)
			wr.Local[0], wr.Remote[0] = part(src, 0, n), segment(m, 0, n)
			t.must(a.qp.PostSend(wr))
			t.until("the tail word", func() bool {
				a.poll()
				b.recvCQ.Poll(nil)
				up := m.Bytes()[n-8 : n]
				if bytes.Equal(up, make([]byte, 8)) {
					return false
				}
				// as soon as a byte of the tail is placed, all the rest is
				t.must(check(m.Bytes()[:n-8], 1, round))
				return bytes.Equal(up, word)
			})
			t.one(a, round, transport.OpWrite, a, b)
		}
	}},
	{"Order/TailIsPlacedLastInEachOfManyWrites", func(t *trial) {
		a, b := t.pair(shape{})
		const size, writes = 3000, 16
		src, m := a.memory(size*writes, all), b.memory(size*writes, all)
		for round := range uint64(20) {
			fill(src.Bytes(), 1, round)
			clear(m.Bytes())
			for i := range writes {
				word := src.Bytes()[(i+1)*size-8 : (i+1)*size]
				binary.LittleEndian.PutUint64(word, ^uint64(i))
				wr := write(round, src, m)
				if i < writes-1 {
					wr = without(wr, transport.FlagSignaled)
				}
				wr.Local[0], wr.Remote[0] = part(src, i*size, size), segment(m, i*size, size)
				t.must(a.qp.PostSend(wr))
			}
			up := map[int]bool{}
			t.until("every tail", func() bool {
				a.poll()
				b.recvCQ.Poll(nil)
				for i := range writes {
					at := m.Bytes()[i*size : (i+1)*size]
					if up[i] || bytes.Equal(at[size-8:], make([]byte, 8)) {
						continue
					}
					if !bytes.Equal(at[:size-8], src.Bytes()[i*size:(i+1)*size-8]) {
						t.failf("round %d: the tail of Write %d is up before the rest of it", round, i)
					}
					up[i] = bytes.Equal(at[size-8:], src.Bytes()[(i+1)*size-8:(i+1)*size])
				}
				return len(up) == writes && allTrue(up)
			})
			t.one(a, round, transport.OpWrite, a, b) // now the buffers and the queue may be used again
		}
	}},
	{"Order/DeliveredSendImpliesEarlierWrites", delivers(transport.OpSend)},
	{"Order/DeliveredImmediateImpliesEarlierWrites", delivers(transport.OpWriteImm)},
	{"Order/RecvsAreUsedAndCompleteInTheOrderOfTheSends", func(t *trial) {
		a, b := t.pair(shape{})
		const n = 50
		src, dst := a.memory(n*300, all), b.memory(n*300, all)
		fill(src.Bytes(), 1, 1)
		for i := range n {
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: uint64(i),
				Local: []transport.SGE{part(dst, i*300, 300)}}))
		}
		for i := range n {
			wr := send(uint64(i), src)
			wr.Local[0] = part(src, i*300, 300)
			if i%3 == 1 { // an immediate in between uses a Recv, too
				wr = &transport.SendWR{ID: uint64(i), Op: transport.OpWriteImm,
					Flags: transport.FlagSignaled, Imm: uint32(i)}
			}
			t.must(a.qp.PostSend(wr))
		}
		for i, wc := range t.take(b, n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess || wc.HasImm != (i%3 == 1) {
				t.failf("completion %d is %+v", i, wc)
			}
			if i%3 != 1 {
				at := dst.Bytes()[i*300 : (i+1)*300]
				if !bytes.Equal(at, src.Bytes()[i*300:(i+1)*300]) {
					t.failf("message %d is another", i)
				}
			}
		}
		for i, wc := range t.take(a, n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
				t.failf("send completion %d is %+v", i, wc)
			}
		}
	}},
	{"Order/OnlyAReadMayBeOvertaken", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst, m := a.memory(20_000, all), a.memory(20_000, all), b.memory(20_000, all)
		for range 20 {
			for i := range uint64(15) {
				wr := write(i, src, m)
				if i%3 == 0 {
					wr = read(i, dst, m)
				}
				t.must(a.qp.PostSend(wr))
			}
			last := map[bool]uint64{}
			for i, wc := range t.take(a, 15, a, b) {
				isRead := wc.Op == transport.OpRead
				if wc.Status != transport.StatusSuccess || isRead != (wc.ID%3 == 0) {
					t.failf("completion %d is %+v", i, wc)
				}
				if next, seen := last[isRead]; seen && wc.ID <= next {
					t.failf("completion %d is of request %d, after %d", i, wc.ID, next)
				}
				if !isRead { // a Read may complete late, never early
					last[isRead] = wc.ID
					continue
				}
				if w, seen := last[false]; wc.ID > 0 && (!seen || w < wc.ID-1) {
					t.failf("completion %d: Read %d is ahead of an earlier Write", i, wc.ID)
				}
				last[isRead] = wc.ID
			}
		}
	}},
	{"Order/FenceWaitsForEarlierReads", func(t *trial) {
		a, b := t.pair(shape{})
		const size = 60_000
		for round := range uint64(30) {
			dst, src, m := a.memory(size, all), a.memory(size, all), b.memory(size, all)
			fill(m.Bytes(), 1, round)
			fill(src.Bytes(), 2, round)
			t.must(a.qp.PostSend(read(1, dst, m)))
			t.must(a.qp.PostSend(with(write(2, src, m), transport.FlagFence)))
			t.one(a, 1, transport.OpRead, a, b)
			t.one(a, 2, transport.OpWrite, a, b)
			t.must(check(dst.Bytes(), 1, round)) // the contents before the Write
			t.until("the Write", func() bool { return check(m.Bytes(), 2, round) == nil }, a, b)
			for _, x := range []transport.MR{dst, src, m} {
				t.must(x.Deregister())
			}
		}
	}},
}

func allTrue(set map[int]bool) bool {
	for _, v := range set {
		if !v {
			return false
		}
	}
	return true
}
