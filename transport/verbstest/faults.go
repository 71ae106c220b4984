package verbstest

import (
	"errors"

	"github.com/weft-mpi/weft/transport"
)

var faultChecks = []Check{
	{"Fault/C5_CutUnderTraffic", func(t *trial) {
		faults := t.faults()
		for round := range 20 {
			a, b := t.pair(shape{})
			posted := t.traffic(a, b)
			t.polls(round, a, b)
			if t.done(posted, a, b) { // too late to strike
				t.closeAll()
				continue
			}
			t.must(faults.Cut(a.dev, b.dev))
			t.allOnce(posted, a, b)
			for _, n := range []*node{a, b} {
				t.until("the queue pair in error",
					func() bool { return n.qp.State() == transport.StateError }, a, b)
				t.is(n.qp.Err(), "error after a cut", transport.ErrPeerLost)
			}
			t.closeAll()
		}
	}},
	{"Fault/CutIsHeardByWhoKeepsARecvPosted", func(t *trial) {
		faults := t.faults()
		a, b := t.pair(shape{})
		for _, n := range []*node{a, b} {
			t.must(n.qp.PostRecv(&transport.RecvWR{ID: 1}))
		}
		t.must(faults.Cut(a.dev, b.dev))
		for _, n := range []*node{a, b} {
			t.flushed(t.take(n, 1, a, b), 1, 1, transport.StatusFatal)
			t.is(n.qp.Err(), "error after a cut", transport.ErrPeerLost)
		}
		t.none(a, b)
	}},
	{"Fault/C5_CutWhileClosing", func(t *trial) {
		faults := t.faults()
		for round := range 10 {
			a, b := t.pair(shape{})
			src := a.memory(100_000, all)
			for i := range uint64(5) {
				t.must(b.qp.PostRecv(&transport.RecvWR{ID: i,
					Local: []transport.SGE{sge(b.memory(100_000, all))}}))
				t.must(a.qp.PostSend(send(100+i, src)))
			}
			a.qp.Close()
			t.polls(round, a, b)
			t.must(faults.Cut(a.dev, b.dev))
			t.until("the ends", bothIn(a, b, transport.StateError), a, b)
			t.allOnce(map[*node]int{a: 5, b: 5}, a, b)
			t.closeAll()
		}
	}},
	{"Fault/C6_NothingIsPlacedAfterACut", func(t *trial) {
		faults := t.faults()
		for round := range 10 {
			a, b := t.pair(shape{})
			m := b.memory(64<<10, all)
			for i := range uint64(10) {
				src := a.memory(64<<10, all)
				fill(src.Bytes(), 1, i)
				t.must(a.qp.PostSend(write(i, src, m)))
			}
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
			t.polls(round, a, b)
			t.must(faults.Cut(a.dev, b.dev))
			t.take(b, 1, a, b)
			before := append([]byte(nil), m.Bytes()...)
			t.settle(a, b)
			for i, x := range m.Bytes() {
				if x != before[i] {
					t.failf("byte %d was placed after the flushed Recv told of the end", i)
				}
			}
			t.closeAll()
		}
	}},
	{"Fault/PeerVanishes", func(t *trial) {
		faults := t.faults()
		for round := range 10 {
			nodes := t.ranks(3, shape{})
			a, b, c := nodes[0], nodes[1], nodes[2]
			a.qp, b.qp = t.connect(a, b)
			withC, _ := t.connect(a, c)
			posted := t.traffic(a, b)
			t.polls(round, a, b)
			t.must(faults.Vanish(b.dev))
			delete(posted, b)
			t.until("the queue pair in error", func() bool { return a.qp.State() == transport.StateError }, a)
			t.allOnce(posted, a)
			t.is(a.qp.Err(), "error after the peer vanished", transport.ErrPeerLost)
			if s := withC.State(); s != transport.StateReady {
				t.failf("the queue pair with the other rank is %v: %v", s, withC.Err())
			}
			t.closeAll()
		}
	}},
	{"Fault/ConnectAgainAfterACut", func(t *trial) {
		faults := t.faults()
		a, b := t.pair(shape{})
		t.must(faults.Cut(a.dev, b.dev))
		t.until("the ends", bothIn(a, b, transport.StateError), a, b)
		if errors.Is(a.qp.Err(), transport.ErrClosed) {
			t.failf("a cut looks like an orderly close: %v", a.qp.Err())
		}
		a.qp.Release()
		b.qp.Release()
		b.qp, a.qp = t.connect(b, a)
		t.well(a, b)
	}},
}

// done reports whether every request has completed.
func (t *trial) done(posted map[*node]int, nodes ...*node) bool {
	for _, n := range nodes {
		if len(n.wcs) < posted[n] {
			return false
		}
	}
	return true
}
