package verbstest

import (
	"errors"

	"github.com/weft-mpi/weft/transport"
)

var closeChecks = []Check{
	{"Close/C3_EarlierWorkIsDeliveredAndCompleted", func(t *trial) {
		a, b := t.pair(shape{})
		const n, size = 20, 10_000
		src, dst, m := a.memory(n*size, all), b.memory(n*size, all), b.memory(n*size, all)
		fill(src.Bytes(), 1, 1)
		for i := range n {
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: uint64(i),
				Local: []transport.SGE{part(dst, i*size, size)}}))
			wr := write(uint64(2*i), src, m)
			wr.Local[0], wr.Remote[0] = part(src, i*size, size), segment(m, i*size, size)
			t.must(a.qp.PostSend(wr))
			wr = send(uint64(2*i+1), src)
			wr.Local[0] = part(src, i*size, size)
			t.must(a.qp.PostSend(wr))
		}
		a.qp.Close()
		if s := a.qp.State(); s != transport.StateClosing {
			t.failf("state after Close is %v", s)
		}
		t.is(a.qp.PostSend(send(99, src)), "PostSend after Close", transport.ErrState)
		t.until("the peer to hear of it", func() bool { return b.qp.State() == transport.StateDraining }, a,
			b)
		t.is(b.qp.Err(), "the peer's error", transport.ErrClosed)
		t.must(check(dst.Bytes(), 1, 1))
		t.must(check(m.Bytes(), 1, 1))
		for i, wc := range t.take(b, n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
				t.failf("receive %d: %+v", i, wc)
			}
		}
		b.qp.Close()
		t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
		for i, wc := range t.take(a, 2*n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
				t.failf("send %d: %+v", i, wc)
			}
		}
		t.none(a, b)
	}},
	{"Close/C3_EachDirectionClosesByItself", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst, m := b.memory(5000, all), a.memory(5000, all), a.memory(5000, all)
		fill(src.Bytes(), 2, 1)
		t.must(a.qp.PostRecv(recv(1, dst)))
		a.qp.Close()
		t.until("the peer to hear of it", func() bool { return b.qp.State() == transport.StateDraining }, a,
			b)
		back := b.memory(5000, all)
		t.must(b.qp.PostSend(write(2, src, m)))
		t.must(b.qp.PostSend(send(3, src)))
		t.one(a, 1, transport.OpRecv, a, b)
		t.must(check(dst.Bytes(), 2, 1))
		t.must(check(m.Bytes(), 2, 1))
		t.must(b.qp.PostSend(read(4, back, m))) // ours still works until Close: a Read too
		t.one(b, 2, transport.OpWrite, a, b)
		t.one(b, 3, transport.OpSend, a, b)
		t.one(b, 4, transport.OpRead, a, b)
		t.must(check(back.Bytes(), 2, 1))
		b.qp.Close()
		t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
		t.none(a, b)
	}},
	{"Close/C5_BothAtOnce", func(t *trial) {
		for round := range 20 {
			a, b := t.pair(shape{})
			src, dst := map[*node]transport.MR{}, map[*node]transport.MR{}
			for _, n := range []*node{a, b} {
				src[n], dst[n] = n.memory(20_000, all), n.memory(20_000, all)
				fill(src[n].Bytes(), uint64(n.rank), 1)
				t.must(n.qp.PostRecv(recv(1, dst[n])))
				t.must(n.qp.PostRecv(recv(2, dst[n])))
			}
			for _, n := range []*node{a, b} {
				t.must(n.qp.PostSend(send(3, src[n])))
			}
			t.polls(round, a, b)
			a.qp.Close()
			b.qp.Close()
			t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
			for _, ends := range both(a, b) {
				n, peer := ends[0], ends[1]
				t.until("the completions", func() bool { return len(n.wcs) >= 3 }, a, b)
				sends, recvs := split(n.wcs)
				if len(sends) != 1 || sends[0].Status != transport.StatusSuccess || len(recvs) != 2 ||
					recvs[0].ID != 1 ||
					recvs[0].Status != transport.StatusSuccess {
					t.failf("round %d: rank %d: completions %+v", round, n.rank, n.wcs)
				}
				t.flushed(recvs[1:], 2, 1)
				t.must(check(dst[n].Bytes(), uint64(peer.rank), 1))
				t.is(n.qp.Err(), "error after an orderly close by the peer", transport.ErrClosed)
			}
			t.closeAll()
		}
	}},
	{"Close/C5_WithReadsOutstanding", func(t *trial) {
		for _, byReader := range []bool{true, false} {
			a, b := t.pair(shape{reads: 2})
			const n, size = 10, 20_000
			m, dst := b.memory(n*size, all), a.memory(n*size, all)
			fill(m.Bytes(), 2, 1)
			for i := range n {
				wr := read(uint64(i), dst, m)
				wr.Local[0], wr.Remote[0] = part(dst, i*size, size), segment(m, i*size, size)
				t.must(a.qp.PostSend(wr))
			}
			if byReader {
				a.qp.Close()
			} else {
				b.qp.Close() // its direction has no work, but it still answers a's
			}
			for i, wc := range t.take(a, n, a, b) {
				if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
					t.failf("closed by the reader: %t: Read %d: %+v", byReader, i, wc)
				}
			}
			t.must(check(dst.Bytes(), 2, 1))
			a.qp.Close()
			b.qp.Close()
			t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
			t.none(a, b)
			t.closeAll()
		}
	}},
	{"Close/PostedRecvsCompleteFlushedOnce", func(t *trial) {
		a, b := t.pair(shape{})
		dst := b.memory(64, all)
		for i := range uint64(10) {
			t.must(b.qp.PostRecv(recv(i, dst)))
		}
		a.qp.Close()
		t.until("the peer to hear of it", func() bool { return b.qp.State() == transport.StateDraining }, a,
			b)
		b.qp.Close()
		t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
		t.until("the flushed Recvs", func() bool { return len(b.wcs) >= 10 }, a, b)
		t.settle(a, b)
		t.flushed(b.wcs, 0, 10)
	}},
	{"Close/TwiceAndAfterTheEndIsHarmless", func(t *trial) {
		a, b := t.pair(shape{})
		a.qp.Close()
		a.qp.Close()
		b.qp.Close()
		t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
		a.qp.Close()
		a.qp.Abort(errors.New("too late"))
		if s := a.qp.State(); s != transport.StateClosed {
			t.failf("state %v, want closed to be final", s)
		}
		t.none(a, b)
	}},
	{"Close/ReleaseAfterTheCloseDoesNotDisturbThePeer", func(t *trial) {
		for range 10 {
			a, b := t.pair(shape{})
			src, dst := a.memory(50_000, all), b.memory(50_000, all)
			fill(src.Bytes(), 1, 1)
			t.must(b.qp.PostRecv(recv(1, dst)))
			t.must(a.qp.PostSend(send(2, src)))
			a.qp.Close()
			b.qp.Close()
			t.until("our end closed", func() bool { return a.qp.State() == transport.StateClosed }, a, b)
			a.qp.Release()
			t.must(a.dev.Close())
			t.until("the peer's end closed", func() bool {
				if b.qp.State() == transport.StateError {
					t.failf("the peer lost the connection: %v", b.qp.Err())
				}
				return b.qp.State() == transport.StateClosed
			}, b)
			t.one(b, 1, transport.OpRecv, b)
			t.must(check(dst.Bytes(), 1, 1))
			t.closeAll()
		}
	}},
	{"Abort/C4_BothEndsEnd", func(t *trial) {
		a, b := t.pair(shape{})
		cause := errors.New("sick of it")
		t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
		a.qp.Abort(cause)
		if s := a.qp.State(); s != transport.StateError {
			t.failf("state after Abort is %v", s)
		}
		t.is(a.qp.Err(), "own error", cause)
		t.flushed(t.take(b, 1, a, b), 1, 1, transport.StatusFatal)
		if s, err := b.qp.State(), b.qp.Err(); s != transport.StateError || err == nil ||
			errors.Is(err, transport.ErrClosed) {
			t.failf("the peer is %v, %v", s, err)
		}
		t.none(a, b)
	}},
	{"Abort/UnderTrafficCompletesEverythingOnce", func(t *trial) {
		for round := range 20 {
			a, b := t.pair(shape{})
			posted := t.traffic(a, b)
			t.polls(round, a, b)
			b.qp.Abort(nil)
			t.allOnce(posted, a, b)
			t.closeAll()
		}
	}},
	{"Release/DropsCompletionsAndCutsThePeer", func(t *trial) {
		a, b := t.pair(shape{})
		src := a.memory(64, all)
		for i := range uint64(10) {
			t.must(a.qp.PostRecv(recv(i, src)))
		}
		a.qp.Abort(nil)
		a.qp.Release()
		a.qp.Release()
		t.none(a)
		t.until("the peer to hear of it", func() bool { return b.qp.State() == transport.StateError }, a, b)
		t.is(a.qp.PostSend(send(1, src)), "PostSend after Release", transport.ErrState)
	}},
	{"Release/AnOpenQueuePairIsAborted", func(t *trial) {
		a, b := t.pair(shape{})
		t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
		a.qp.Release()
		t.flushed(t.take(b, 1, a, b), 1, 1, transport.StatusFatal)
	}},
	{"Teardown/DeviceCloseUnderTraffic", func(t *trial) {
		for round := range 20 {
			a, b := t.pair(shape{})
			posted := t.traffic(a, b)
			t.polls(round, a, b)
			t.must(a.dev.Close())
			delete(posted, a) // its completions are gone, too
			t.allOnce(posted, b)
			t.closeAll()
		}
	}},
	{"Teardown/ConnectAgainAfterTheEnd", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		for round := range 6 {
			if round%2 == 0 {
				a.qp, b.qp = t.connect(a, b)
			} else {
				b.qp, a.qp = t.connect(b, a)
			}
			t.well(a, b)
			a.qp.Close()
			b.qp.Close()
			t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
			a.qp.Release()
			b.qp.Release()
		}
	}},
}

// traffic posts work of every kind on both ends, and returns the number of requests of each.
func (t *trial) traffic(a, b *node) map[*node]int {
	const n, size = 10, 30_000
	posted := map[*node]int{}
	for _, ends := range both(a, b) {
		x, peer := ends[0], ends[1]
		src, m := x.memory(size, all), peer.memory(size, all)
		for i := range uint64(n) {
			t.must(peer.qp.PostRecv(&transport.RecvWR{ID: 1000 + i, Local: []transport.SGE{sge(m)}}))
			posted[peer]++
			for _, wr := range []*transport.SendWR{write(3*i, src, m), read(3*i+1, src, m),
				send(3*i+2, src)} {
				t.must(x.qp.PostSend(wr))
				posted[x]++
			}
		}
	}
	return posted
}

// allOnce checks that every posted request completes once, those of each queue in order, except that a Read
// may be late, and only with failures after the first failure.
func (t *trial) allOnce(posted map[*node]int, nodes ...*node) {
	for n, k := range posted {
		t.until("every request completed", func() bool { return len(n.wcs) >= k }, nodes...)
	}
	t.settle(nodes...)
	for n, k := range posted {
		if len(n.wcs) != k {
			t.failf("rank %d: %d completions for %d requests: %+v", n.rank, len(n.wcs), k, n.wcs)
		}
		seen := map[uint64]bool{}
		failed := map[bool]bool{}
		last := map[transport.Opcode]uint64{}
		for i, wc := range n.wcs {
			if seen[wc.ID] {
				t.failf("rank %d: request %d completed twice: %+v", n.rank, wc.ID, n.wcs)
			}
			seen[wc.ID] = true
			if before, any := last[wc.Op]; any && wc.ID < before {
				t.failf("rank %d: completion %d: request %d comes after %d", n.rank, i, wc.ID, before)
			}
			last[wc.Op] = wc.ID
			queue := wc.Op == transport.OpRecv
			if wc.Status == transport.StatusSuccess && failed[queue] {
				t.failf("rank %d: completion %d is a success after a failure: %+v", n.rank, i, n.wcs)
			}
			failed[queue] = failed[queue] || wc.Status != transport.StatusSuccess
		}
	}
}
