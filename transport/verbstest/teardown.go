package verbstest

import (
	"bytes"

	"github.com/weft-mpi/weft/transport"
)

// streamed is guarded memory that a peer writes and reads while it is removed.
type streamed struct {
	buf []byte // guard, region, guard
	mr  transport.MR
}

const streamGuard, streamSize = 256, 48 << 10

func (n *node) stream() *streamed {
	s := &streamed{buf: make([]byte, streamSize+2*streamGuard)}
	var err error
	s.mr, err = n.pd.Register(s.buf[streamGuard:streamGuard+streamSize], all)
	n.t.must(err)
	return s
}

func (s *streamed) guarded(t *trial) {
	t.must(zero(s.buf[:streamGuard]))
	t.must(zero(s.buf[streamGuard+streamSize:]))
}

// teardown removes something of b while both ends write, send to and read from each other's memory. It checks
// that nothing is placed outside the regions, or in those of b that must be quiet by the contract, and that
// each request of a completes once.
func teardown(take func(t *trial, b *node, s *streamed)) func(*trial) {
	return func(t *trial) {
		for round := range 12 {
			a, b := t.pair(shape{})
			sa, sb := a.stream(), b.stream()
			posted := map[*node]int{}
			for _, ends := range [2]struct {
				x, peer  *node
				from, to *streamed
			}{{a, b, sa, sb}, {b, a, sb, sa}} {
				for i := range uint64(6) {
					// Each has its own source memory: the contents of a region that is also written are
					// undefined.
					src := ends.x.memory(streamSize, all)
					fill(src.Bytes(), uint64(ends.x.rank), i)
					t.must(ends.peer.qp.PostRecv(&transport.RecvWR{ID: 1000 + i,
						Local: []transport.SGE{part(ends.to.mr, 100, 9000)}}))
					posted[ends.peer]++
					wr := send(3*i, src)
					wr.Local[0].Length = 9000
					for _, wr := range []*transport.SendWR{wr, write(3*i+1, src, ends.to.mr),
						read(3*i+2, src, ends.to.mr)} {
						t.must(ends.x.qp.PostSend(wr))
						posted[ends.x]++
					}
				}
			}
			for range round {
				a.poll()
				b.poll()
			}
			take(t, b, sb)
			before := bytes.Clone(sb.buf)
			delete(posted, b)
			t.allOnce(posted, a, b)
			if !bytes.Equal(before, sb.buf) {
				t.failf("round %d: memory was written after it was taken away", round)
			}
			sa.guarded(t)
			sb.guarded(t)
			t.closeAll()
		}
	}
}

var teardownChecks = []Check{
	{"Teardown/ReleaseWhileBothStream", teardown(func(t *trial, b *node, _ *streamed) {
		b.qp.Release()
		b.wcs = nil
	})},
	{"Teardown/AbortWhileBothStream", teardown(func(t *trial, b *node, _ *streamed) { b.qp.Abort(nil) })},
	{"Teardown/DeregisterWhileBothStream", teardown(func(t *trial, b *node,
		s *streamed) {
		t.must(s.mr.Deregister())
	})},
	{"Teardown/DeviceCloseWhileBothStream", teardown(func(t *trial, b *node,
		_ *streamed) {
		t.must(b.dev.Close())
	})},
	{"Teardown/ReleaseThenDeregisterThenClosesEverything", func(t *trial) {
		for round := range 6 {
			a, b := t.pair(shape{})
			s := b.stream()
			src := a.memory(streamSize, all)
			for i := range uint64(4) {
				t.must(a.qp.PostSend(write(i, src, s.mr)))
			}
			for range round {
				a.poll()
				b.poll()
			}
			b.qp.Release()
			t.must(s.mr.Deregister())
			t.must(b.pd.Close())
			t.must(b.recvCQ.Close())
			t.until("the poster's completions", func() bool { return len(a.wcs) == 4 }, a)
			s.guarded(t)
			t.closeAll()
		}
	}},
	{"Teardown/OneQueuePairOfManyGoesAndTheOthersStream", func(t *trial) {
		hub, others := t.star(3, shape{})
		nodes := append([]*node{hub}, others...)
		const size = 30_000
		for round := range uint64(6) {
			gone := others[round%3]
			m := hub.memory(size, all)
			for _, x := range others {
				src := x.memory(size, all)
				fill(src.Bytes(), uint64(x.rank), round)
				place := hub.memory(size, all)
				if x == gone {
					t.must(x.qp.PostSend(without(write(round, src, m), transport.FlagSignaled)))
					continue
				}
				t.must(hub.to(x.rank)[len(hub.to(x.rank))-1].PostRecv(recv(uint64(x.rank), place)))
				t.must(x.qp.PostSend(without(send(round, src), transport.FlagSignaled)))
			}
			at := hub.to(gone.rank)
			at[len(at)-1].Release()
			for _, wc := range t.take(hub, 2, nodes...) {
				if wc.Status != transport.StatusSuccess || wc.Bytes != size {
					t.failf("round %d: %+v", round, wc)
				}
			}
			t.until("the peer to hear of it",
				func() bool { return gone.qp.State() == transport.StateError }, nodes...)
			gone.qp.Release()
			gone.wcs = nil
			gone.qp, _ = t.connect(gone, hub)
		}
	}},
	{"Teardown/ConnectAgainAfterAbortsAndReleases", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		numbers := map[transport.QPN]bool{}
		for round := range 8 {
			a.qp, b.qp = t.connect(a, b)
			if numbers[a.qp.Num()] {
				t.failf("number %d is used again", a.qp.Num())
			}
			numbers[a.qp.Num()] = true
			t.well(a, b)
			dst := b.memory(64, all)
			t.must(b.qp.PostRecv(recv(uint64(round), dst))) // no later connection may use it
			switch round % 4 {
			case 0:
				a.qp.Abort(nil)
			case 1:
				b.qp.Abort(nil)
			case 2:
				a.qp.Release()
			case 3:
				a.qp.Close()
			}
			t.until("the other end to hear of it",
				func() bool { return b.qp.State() != transport.StateReady }, a, b)
			a.qp.Release()
			b.qp.Release()
			a.wcs, b.wcs = nil, nil
			t.none(a, b)
		}
	}},
}
