package verbstest

import (
	"errors"

	"github.com/weft-mpi/weft/transport"
)

// flushed checks that exactly the requests first…first+n-1 have failed, each once and in order: the first
// with one of the given statuses or flushed, the others flushed.
func (t *trial) flushed(wcs []transport.WC, first uint64, n int, cause ...transport.Status) {
	if len(wcs) != n {
		t.failf("%d completions for %d requests: %+v", len(wcs), n, wcs)
	}
	for i, wc := range wcs {
		known := wc.Status == transport.StatusFlushed
		for _, s := range cause {
			known = known || i == 0 && wc.Status == s
		}
		if wc.ID != first+uint64(i) || !known || wc.Err == nil {
			t.failf("completion %d is %+v, want request %d flushed, with a reason", i, wc, first+uint64(i))
		}
	}
}

// split separates the completions of Recvs from the others.
func split(wcs []transport.WC) (sends, recvs []transport.WC) {
	for _, wc := range wcs {
		if wc.Op == transport.OpRecv {
			recvs = append(recvs, wc)
		} else {
			sends = append(sends, wc)
		}
	}
	return sends, recvs
}

var errorChecks = []Check{
	{"Error/SendThatFindsNoRecvEndsTheQueuePair", func(t *trial) {
		for _, op := range []transport.Opcode{transport.OpSend, transport.OpWriteImm} {
			a, b := t.pair(shape{})
			t.must(a.qp.PostSend(&transport.SendWR{ID: 1, Op: op, Flags: transport.FlagSignaled}))
			t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b)
			if len(a.wcs) != 1 || a.wcs[0].Status != transport.StatusRNR &&
				a.wcs[0].Status != transport.StatusSuccess {
				t.failf("completions %+v, want receiver not ready, or a success from before it was known",
					a.wcs)
			}
			if a.qp.Err() == nil || errors.Is(a.qp.Err(), transport.ErrClosed) || b.qp.Err() == nil {
				t.failf("errors %v and %v", a.qp.Err(), b.qp.Err())
			}
			t.closeAll()
		}
	}},
	{"Error/MessageLongerThanItsRecv", func(t *trial) {
		a, b := t.pair(shape{})
		src := a.memory(65, all)
		guard := make([]byte, 192)
		dst, err := b.pd.Register(guard[64:128], all)
		t.must(err)
		fill(src.Bytes(), 1, 1)
		t.must(b.qp.PostRecv(recv(1, dst)))
		t.must(b.qp.PostRecv(recv(2, dst)))
		t.must(a.qp.PostSend(send(3, src)))
		wcs := t.take(b, 2, a, b)
		if wcs[0].ID != 1 || wcs[0].Status != transport.StatusLocalLength || wcs[0].Err == nil {
			t.failf("completion %+v, want a local length error", wcs[0])
		}
		t.flushed(wcs[1:], 2, 1)
		t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b)
		t.must(zero(guard[:64]))
		t.must(zero(guard[128:]))
		if len(a.wcs) != 1 || a.wcs[0].Status != transport.StatusRemoteOp &&
			a.wcs[0].Status != transport.StatusSuccess {
			t.failf("completions %+v at the sender", a.wcs)
		}
		t.must(dst.Deregister())
	}},
	{"Error/C4_FlushCompletesEveryRequestOnceAndInOrder", func(t *trial) {
		a, _ := t.pair(shape{})
		const n = 20
		src := a.memory(64, all)
		for i := range uint64(n) {
			t.must(a.qp.PostRecv(recv(100+i, src)))
			t.must(a.qp.PostSend(read(i, src, src))) // a Read, for it needs the peer, which is not driven
		}
		cause := errors.New("enough")
		a.qp.Abort(cause)
		t.until("all completions", func() bool { return len(a.wcs) >= 2*n }, a)
		t.settle(a)
		sends, recvs := split(a.wcs)
		t.flushed(sends, 0, n, transport.StatusFatal)
		t.flushed(recvs, 100, n, transport.StatusFatal)
		t.is(a.qp.Err(), "the queue pair's error", cause)
	}},
	{"Error/EarlierWorkCompletesAndLaterWorkIsFlushed", func(t *trial) {
		a, b := t.pair(shape{})
		src, m := a.memory(64, all), b.memory(64, all)
		fill(m.Bytes(), 2, 2)
		bad := read(3, src, m)
		bad.Remote[0].Key ^= 1 << 40
		for _, wr := range []*transport.SendWR{read(0, src, m), read(1, src, m), read(2, src, m), bad,
			read(4, src, m), read(5, src, m)} {
			t.must(a.qp.PostSend(wr))
		}
		wcs := t.take(a, 6, a, b)
		failed := -1
		for i, wc := range wcs {
			if wc.ID != uint64(i) {
				t.failf("completion %d is %+v", i, wc)
			}
			if wc.Status != transport.StatusSuccess && failed < 0 {
				failed = i
			}
		}
		if failed < 0 || failed > 3 || wcs[3].Status != transport.StatusRemoteAccess {
			t.failf("completions %+v, want request 3 to be refused", wcs)
		}
		t.flushed(wcs[4:], 4, 2)
	}},
	{"Error/PostsToAQueuePairInError", func(t *trial) {
		a, _ := t.pair(shape{})
		src := a.memory(64, all)
		a.qp.Abort(nil)
		t.is(a.qp.PostSend(send(1, src)), "PostSend", transport.ErrState)
		t.must(a.qp.PostRecv(recv(2, src)))
		t.flushed(t.take(a, 1, a), 2, 1)
		t.none(a)
	}},
	{"Error/C6_NothingIsPlacedAfterTheEnd", func(t *trial) {
		for round := range 10 {
			a, b := t.pair(shape{})
			const size = 64 << 10
			m := b.memory(size, all)
			for i := range uint64(10) {
				src := a.memory(size, all)
				fill(src.Bytes(), 1, i)
				t.must(a.qp.PostSend(write(i, src, m)))
			}
			t.polls(round, a, b)
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
			b.qp.Abort(nil)
			t.take(b, 1, b)
			before := append([]byte(nil), m.Bytes()...)
			t.settle(a, b)
			for i, x := range m.Bytes() {
				if x != before[i] {
					t.failf("byte %d was placed after the flushed Recv told of the end", i)
				}
			}
			t.until("the poster's completions", func() bool { return len(a.wcs) == 10 }, a, b)
			t.closeAll()
		}
	}},
}
