package verbstest

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// flushChecks test queues that run out or overflow, and the order in which the remaining requests complete.
var flushChecks = []Check{
	{"RNR/MessageAfterTheLastRecvEndsTheQueuePair", exhaustion(transport.OpSend)},
	{"RNR/ImmediateAfterTheLastRecvEndsTheQueuePair", exhaustion(transport.OpWriteImm)},
	{"RNR/EndsItsQueuePairAlone", func(t *trial) {
		hub, others := t.star(2, shape{})
		t.must(others[0].qp.PostSend(&transport.SendWR{ID: 1, Op: transport.OpSend,
			Flags: transport.FlagSignaled}))
		bad, good := hub.to(others[0].rank)[0], hub.to(others[1].rank)[0]
		t.until("the queue pair in error", func() bool { return bad.State() == transport.StateError }, hub,
			others[0], others[1])
		hub.qp, hub.wcs = good, nil
		t.well(others[1], hub)
	}},
	{"CQ/ExactlyItsDepthIsNoOverrun", func(t *trial) {
		const depth = 8
		a, b := t.pair(shape{cqDepth: depth})
		src, dst := a.memory(8, all), b.memory(8, all)
		for round := range uint64(3) {
			for i := range uint64(depth) {
				t.must(b.qp.PostRecv(recv(i, dst)))
			}
			for i := range uint64(depth) {
				wr := send(round*depth+i, src)
				if round != 1 {
					wr = without(wr, transport.FlagSignaled)
				}
				t.must(a.qp.PostSend(wr))
			}
			last := a.memory(8, all)
			if round == 0 { // nobody polls: every completion is in the queue when the last bytes are there
				m := b.memory(8, all)
				fill(last.Bytes(), 3, 3)
				t.must(a.qp.PostSend(without(write(0, last, m), transport.FlagSignaled)))
				t.until("the Write after",
					func() bool {
						a.sendCQ.Poll(nil)
						b.recvCQ.Poll(nil)
						return check(m.Bytes(), 3,
							3) == nil
					})
				for range 50 {
					a.sendCQ.Poll(nil)
					b.recvCQ.Poll(nil)
				}
			}
			for i, wc := range t.take(b, depth, a, b) {
				if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
					t.failf("completion %d is %+v", i, wc)
				}
			}
			if round == 1 {
				t.take(a, depth, a, b)
			}
		}
		t.none(a, b)
	}},
	{"CQ/OverrunOfSendsIsAnErrorToo", func(t *trial) {
		const depth = 4
		a, b := t.pair(shape{cqDepth: depth})
		src, m := a.memory(8, all), b.memory(8, all)
		for i := range uint64(3 * depth) {
			if a.qp.PostSend(write(i, src, m)) != nil {
				break
			}
			b.poll()
		}
		t.until("the queue pair to fail", func() bool {
			a.sendCQ.Poll(nil)
			return a.qp.State() == transport.StateError
		}, b)
		t.is(a.qp.Err(), "the queue pair's error", transport.ErrOverrun)
		t.settle(a)
		for i, wc := range a.wcs {
			if wc.ID != uint64(i) || i < depth && wc.Status != transport.StatusSuccess {
				t.failf("completion %d after the overrun is %+v", i, wc)
			}
		}
		if len(a.wcs) < depth {
			t.failf("%d completions are left of the %d before the overrun", len(a.wcs), depth)
		}
	}},
	{"CQ/OverrunTakesEveryQueuePairOfTheQueue", func(t *trial) {
		const depth = 4
		hub, others := t.star(3, shape{cqDepth: depth})
		nodes := append([]*node{hub}, others...)
		dst := hub.memory(8, all)
		loud := others[0]
		at := hub.to(loud.rank)[0]
		for i := range uint64(16) {
			t.must(at.PostRecv(recv(i, dst)))
		}
		for i := range uint64(16) {
			if loud.qp.PostSend(&transport.SendWR{ID: i, Op: transport.OpSend}) != nil {
				break
			}
		}
		for _, x := range others {
			q := hub.to(x.rank)[0]
			t.until("every queue pair of the queue to fail", func() bool {
				hub.recvCQ.Poll(nil)
				return q.State() == transport.StateError
			}, others...)
			t.is(q.Err(), "the queue pair's error", transport.ErrOverrun)
			t.until("the peer to hear of it", func() bool { return x.qp.State() == transport.StateError },
				nodes...)
		}
	}},
	{"Flush/EachQueueOfEachQueuePairInItsOrder", func(t *trial) {
		const n, each = 4, 20
		hub, others := t.star(n, shape{})
		dst := hub.memory(8, all)
		for i := range uint64(each) {
			for k, x := range others { // in turns, so that requests of one queue pair are not consecutive
				q := hub.to(x.rank)[0]
				t.must(q.PostRecv(recv(uint64(k)<<16|i, dst)))
				// a Read, for it needs the peer, which is not driven
				t.must(q.PostSend(read(uint64(k)<<16|i, dst, dst)))
			}
		}
		for k := range others {
			hub.to(others[n-1-k].rank)[0].Abort(fmt.Errorf("for reason %d", k))
		}
		t.until("all completions", func() bool { return len(hub.wcs) >= 2*n*each }, hub)
		t.settle(hub)
		sorted := queues(hub.wcs)
		if len(sorted) != 2*n {
			t.failf("completions of %d queues, want %d", len(sorted), 2*n)
		}
		for _, wcs := range sorted {
			t.flushed(wcs, wcs[0].ID&^0xffff, each, transport.StatusFatal)
		}
	}},
	{"Flush/WhatHasArrivedSucceedsAndTheRestIsFlushed", func(t *trial) {
		const n, arrived = 12, 5
		a, b := t.pair(shape{})
		src, dst, m := a.memory(64, all), b.memory(64, all), b.memory(8, all)
		for i := range uint64(n) {
			t.must(b.qp.PostRecv(recv(i, dst)))
		}
		for i := range uint64(arrived) {
			t.must(a.qp.PostSend(send(i, src)))
		}
		flag := a.memory(8, all)
		fill(flag.Bytes(), 1, 1)
		t.must(a.qp.PostSend(&transport.SendWR{ID: arrived, Op: transport.OpWriteImm,
			Local:  []transport.SGE{sge(flag)},
			Remote: []transport.Segment{segment(m, 0, 8)}}))
		t.until("the Recvs that are used", func() bool { return len(b.wcs) == arrived+1 }, a, b)
		b.qp.Abort(nil)
		t.until("all completions", func() bool { return len(b.wcs) >= n }, a, b)
		t.settle(b)
		for i, wc := range b.wcs[:arrived+1] {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
				t.failf("completion %d is %+v", i, wc)
			}
		}
		t.flushed(b.wcs[arrived+1:], arrived+1, n-arrived-1, transport.StatusFatal)
	}},
	{"Flush/UnsignalledRequestsTellThatTheyFailed", func(t *trial) {
		a, _ := t.pair(shape{})
		dst := a.memory(8, all)
		const n = 10
		for i := range uint64(n) {
			t.must(a.qp.PostSend(without(read(i, dst, dst), transport.FlagSignaled)))
		}
		a.qp.Abort(nil)
		t.until("all completions", func() bool { return len(a.wcs) >= n }, a)
		t.settle(a)
		t.flushed(a.wcs, 0, n, transport.StatusFatal)
	}},
	{"Flush/PostsAfterAnOrderlyEnd", func(t *trial) {
		a, b := t.pair(shape{})
		src := a.memory(8, all)
		a.qp.Close()
		b.qp.Close()
		t.until("both closed", bothIn(a, b, transport.StateClosed), a, b)
		t.is(a.qp.PostSend(send(1, src)), "PostSend", transport.ErrState)
		t.must(a.qp.PostRecv(recv(2, src)))
		t.must(a.qp.PostRecv(recv(3, src)))
		t.flushed(t.take(a, 2, a), 2, 2)
		t.none(a, b)
	}},
	{"Flush/PostsAfterTheFailureAreFlushedAfterIt", func(t *trial) {
		a, _ := t.pair(shape{})
		src := a.memory(8, all)
		for i := range uint64(4) {
			t.must(a.qp.PostRecv(recv(i, src)))
		}
		a.qp.Abort(nil)
		for i := range uint64(4) {
			t.must(a.qp.PostRecv(recv(4+i, src)))
		}
		t.until("all completions", func() bool { return len(a.wcs) >= 8 }, a)
		t.settle(a)
		t.flushed(a.wcs, 0, 8, transport.StatusFatal)
	}},
	{"Order/FenceHoldsAnImmediateBackAfterManyReads", func(t *trial) {
		a, b := t.pair(shape{reads: 4})
		const size, n = 20_000, 6
		for round := range uint64(10) {
			src, m := a.memory(size, all), b.memory(size, all)
			fill(src.Bytes(), 1, round)
			fill(m.Bytes(), 2, round)
			var copies []transport.MR
			for i := range uint64(n) {
				copies = append(copies, a.memory(size, all))
				t.must(a.qp.PostSend(read(i, copies[i], m)))
			}
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
			wr := with(write(n, src, m), transport.FlagFence)
			wr.Op = transport.OpWriteImm
			t.must(a.qp.PostSend(wr))
			t.one(b, 1, transport.OpRecv, a, b)
			for i := range uint64(n) {
				t.one(a, i, transport.OpRead, a, b)
				t.must(check(copies[i].Bytes(), 2, round)) // the contents before
				t.must(copies[i].Deregister())
			}
			t.one(a, n, transport.OpWriteImm, a, b)
			t.must(check(m.Bytes(), 1, round))
			t.must(src.Deregister())
			t.must(m.Deregister())
		}
	}},
	{"Order/FenceAfterNoReadWaitsForNothing", func(t *trial) {
		a, b := t.pair(shape{})
		src, m := a.memory(64, all), b.memory(64, all)
		for i := range uint64(10) {
			t.must(a.qp.PostSend(with(write(i, src, m), transport.FlagFence)))
		}
		for i := range uint64(10) {
			t.one(a, i, transport.OpWrite, a, b)
		}
		t.none(a, b)
	}},
}

// exhaustion sends more messages than there are Recvs: those with a Recv arrive, and the next one ends both
// queue pairs.
func exhaustion(op transport.Opcode) func(*trial) {
	return func(t *trial) {
		const recvs = 5
		a, b := t.pair(shape{})
		src, dst := a.memory(64, all), b.memory(64*recvs, all)
		fill(src.Bytes(), 1, 1)
		for i := range recvs {
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: uint64(i),
				Local: []transport.SGE{part(dst, 64*i, 64)}}))
		}
		for i := range uint64(recvs) {
			t.must(a.qp.PostSend(send(i, src)))
		}
		for i := range uint64(recvs) {
			t.one(b, i, transport.OpRecv, a, b)
			t.one(a, i, transport.OpSend, a, b)
			t.must(check(dst.Bytes()[64*i:64*i+64], 1, 1))
		}
		t.must(a.qp.PostSend(&transport.SendWR{ID: 100, Op: op, Flags: transport.FlagSignaled, Imm: 1}))
		back := a.memory(8, all)
		// posted after it, so it cannot be carried out
		t.must(a.qp.PostSend(read(101, back, b.memory(8, all))))
		t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b)
		wcs := t.take(a, 2, a, b)
		if s := wcs[0].Status; wcs[0].ID != 100 || s != transport.StatusRNR && s != transport.StatusSuccess {
			t.failf("completion %+v, want receiver not ready, or a success from before it was known", wcs[0])
		}
		if wcs[1].ID != 101 || wcs[1].Status == transport.StatusSuccess {
			t.failf("completion %+v of what was after the failure", wcs[1])
		}
		for _, n := range []*node{a, b} {
			if err := n.qp.Err(); err == nil || errors.Is(err, transport.ErrClosed) ||
				errors.Is(err, transport.ErrPeerLost) {
				t.failf("rank %d: error %v", n.rank, err)
			}
		}
		t.none(a, b)
	}
}
