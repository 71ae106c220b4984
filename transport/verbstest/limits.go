package verbstest

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// limitChecks go exactly to a device's limits, and one beyond.
var limitChecks = []Check{
	{"Limit/MostElementsOfAListAndOneMore", func(t *trial) {
		a, b := t.pair(shape{})
		n := a.dev.Query().MaxSGE
		const size = 40 // bytes of an element
		src, dst, m := a.memory(n*size, all), b.memory(n*size, all), b.memory(n*size, all)
		fill(src.Bytes(), 1, 1)
		cut := func(mr transport.MR, k int) (list []transport.SGE) {
			for i := range k {
				list = append(list, part(mr, i*size%len(mr.Bytes()), size))
			}
			return list
		}
		t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1, Local: cut(dst, n)}))
		wr := send(2, src)
		wr.Local = cut(src, n)
		t.must(a.qp.PostSend(wr))
		t.one(b, 1, transport.OpRecv, a, b)
		t.one(a, 2, transport.OpSend, a, b)
		t.must(check(dst.Bytes(), 1, 1))

		wr = write(3, src, m)
		wr.Local = cut(src, n)
		t.must(a.qp.PostSend(wr))
		t.one(a, 3, transport.OpWrite, a, b)
		back := a.memory(n*size, all)
		wr = read(4, back, m)
		wr.Local = cut(back, n)
		t.must(a.qp.PostSend(wr))
		t.one(a, 4, transport.OpRead, a, b)
		t.must(check(back.Bytes(), 1, 1))

		for _, op := range []transport.Opcode{transport.OpSend, transport.OpWrite, transport.OpRead} {
			wr := &transport.SendWR{ID: 5, Op: op, Flags: transport.FlagSignaled, Local: cut(src, n+1)}
			if op != transport.OpSend {
				wr.Remote = []transport.Segment{{Key: m.Key(), Length: uint64((n + 1) * size)}}
			}
			t.is(a.qp.PostSend(wr), "one element too many", transport.ErrInvalid)
		}
		t.is(b.qp.PostRecv(&transport.RecvWR{ID: 5, Local: cut(dst, n+1)}), "one element too many",
			transport.ErrInvalid)
		t.none(a, b)
		t.well(a, b)
	}},
	{"Limit/MostSegmentsOfAReadAndOneMore", func(t *trial) {
		a, b := t.pair(shape{})
		n := a.dev.Query().MaxSegments
		const size = 24
		m, dst := b.memory(n*size, all), a.memory((n+1)*size, all)
		fill(m.Bytes(), 2, 1)
		wr := &transport.SendWR{ID: 1, Op: transport.OpRead, Flags: transport.FlagSignaled,
			Local: []transport.SGE{part(dst, 0, n*size)}}
		for i := range n {
			wr.Remote = append(wr.Remote, segment(m, i*size, size))
		}
		t.must(a.qp.PostSend(wr))
		t.one(a, 1, transport.OpRead, a, b)
		t.must(check(dst.Bytes()[:n*size], 2, 1))
		wr.Local[0].Length += size
		wr.Remote = append(wr.Remote, segment(m, 0, size))
		t.is(a.qp.PostSend(wr), "one segment too many", transport.ErrInvalid)
		t.none(a, b)
		t.well(a, b)
	}},
	{"Limit/MostBytesInlineAndOneMore", func(t *trial) {
		a, b := t.pair(shape{})
		n := a.dev.Query().MaxInline
		src, m := a.memory(n+1, all), b.memory(n+1, all)
		fill(src.Bytes(), 1, 1)
		wr := with(write(1, src, m), transport.FlagInline)
		t.is(a.qp.PostSend(wr), "one byte too many inline", transport.ErrInvalid)
		wr.Local[0].Length, wr.Remote[0].Length = n, uint64(n)
		t.must(a.qp.PostSend(wr))
		clear(src.Bytes())
		t.one(a, 1, transport.OpWrite, a, b)
		t.well(a, b) // a Send after it proves that its bytes are placed
		t.must(check(m.Bytes()[:n], 1, 1))
		t.must(zero(m.Bytes()[n:]))
	}},
	{"Limit/MostReadsOutstandingAndAsManyAgain", func(t *trial) {
		a, b := t.pair(shape{reads: 1 << 30, sendWR: 1 << 30}) // as many as the device allows
		n := 2 * a.dev.Query().MaxReads
		m, dst := b.memory(8*n, all), a.memory(8*n, all)
		fill(m.Bytes(), 2, 1)
		for i := range n {
			wr := read(uint64(i), dst, m)
			wr.Local[0], wr.Remote[0] = part(dst, 8*i, 8), segment(m, 8*i, 8)
			t.must(a.qp.PostSend(wr))
		}
		for i, wc := range t.take(a, n, a, b) {
			if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
				t.failf("Read %d: %+v", i, wc)
			}
		}
		t.must(check(dst.Bytes(), 2, 1))
		t.none(a, b)
	}},
	{"Limit/DeepestQueuesAndOneMore", func(t *trial) {
		a, b := t.pair(shape{sendWR: 1 << 30, recvWR: 1 << 30, reads: 1 << 30, cqDepth: 1 << 18})
		n := a.dev.Query().MaxQPDepth
		m, dst := b.memory(8, all), a.memory(8, all)
		for i := range uint64(n) {
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: i}))
		}
		t.is(b.qp.PostRecv(&transport.RecvWR{ID: 1 << 40}), "a Recv too many", transport.ErrQueueFull)
		for i := range uint64(n) { // Reads, for they need the peer, which is not driven
			if err := a.qp.PostSend(read(i, dst, m)); err != nil {
				t.failf("request %d of a queue of %d: %v", i, n, err)
			}
		}
		t.is(a.qp.PostSend(read(1<<40, dst, m)), "a request too many", transport.ErrQueueFull)
		t.until("every Read", func() bool { return len(a.wcs) == n }, a, b)
		for i := range n {
			for {
				err := a.qp.PostSend(without(&transport.SendWR{ID: uint64(i), Op: transport.OpSend},
					transport.FlagSignaled))
				if err == nil {
					break
				}
				t.is(err, "a Send", transport.ErrQueueFull)
				a.poll()
				b.poll()
			}
		}
		t.until("every Send", func() bool { return len(b.wcs) == n }, a, b)
		for i := range uint64(n) {
			if x, y := a.wcs[i], b.wcs[i]; x.ID != i || x.Status != transport.StatusSuccess || y.ID != i ||
				y.Status != transport.StatusSuccess {
				t.failf("completions %d are %+v and %+v", i, x, y)
			}
		}
	}},
	{"Limit/ShapeBeyondADeviceIsRefused", func(t *trial) {
		limits := t.newDevices(1)[0].Query()
		for what, change := range map[string]func(*shape){
			"no send queue":             func(s *shape) { s.sendWR = 0 },
			"negative send queue":       func(s *shape) { s.sendWR = -1 },
			"send queue too deep":       func(s *shape) { s.sendWR = limits.MaxQPDepth + 1 },
			"negative receive queue":    func(s *shape) { s.recvWR = -1 },
			"receive queue too deep":    func(s *shape) { s.recvWR = limits.MaxQPDepth + 1 },
			"negative number of Reads":  func(s *shape) { s.reads = -1 },
			"more Reads than there are": func(s *shape) { s.reads = limits.MaxReads + 1 },
		} {
			nodes := t.ranks(2, shape{})
			change(&nodes[0].shape)
			t.is(nodes[0].dial(nodes[1]), what, transport.ErrInvalid)
			if len(nodes[0].to(1)) > 0 || len(nodes[1].to(0)) > 0 {
				t.failf("%s: a queue pair was handed over", what)
			}
			t.closeAll()
		}
	}},
	{"Limit/CQOfEveryDepthFromOne", func(t *trial) {
		d := t.newDevices(1)[0]
		for depth := 1; depth <= 1<<16; depth *= 2 {
			for _, n := range []int{depth, depth + 1} {
				c, err := d.CreateCQ(n, 0)
				t.must(err)
				t.must(c.Close())
			}
		}
	}},
	{"Limit/LargeMessagesArriveWhole", func(t *trial) {
		a, b := t.pair(shape{})
		for _, size := range []int{1<<20 - 1, 1 << 20, 8<<20 + 3} {
			src, dst := a.memory(size, all), b.memory(size, all)
			fill(src.Bytes(), 1, uint64(size))
			t.must(b.qp.PostRecv(recv(1, dst)))
			t.must(a.qp.PostSend(send(2, src)))
			t.one(b, 1, transport.OpRecv, a, b)
			t.one(a, 2, transport.OpSend, a, b)
			t.must(check(dst.Bytes(), 1, uint64(size)))
			clear(src.Bytes())
			t.must(a.qp.PostSend(read(3, src, dst)))
			t.one(a, 3, transport.OpRead, a, b)
			t.must(check(src.Bytes(), 1, uint64(size)))
			t.must(src.Deregister())
			t.must(dst.Deregister())
		}
		t.none(a, b)
	}},
	{"Limit/NothingIsAMessageToo", func(t *trial) {
		a, b := t.pair(shape{})
		m := b.memory(8, all)
		t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
		t.must(b.qp.PostRecv(&transport.RecvWR{ID: 2}))
		for i, op := range []transport.Opcode{transport.OpSend, transport.OpWrite, transport.OpRead,
			transport.OpWriteImm} {
			wr := &transport.SendWR{ID: uint64(i), Op: op, Flags: transport.FlagSignaled}
			if op == transport.OpRead {
				wr.Remote = []transport.Segment{segment(m, 8, 0)}
			}
			t.must(a.qp.PostSend(wr))
			t.one(a, uint64(i), op, a, b)
		}
		for i := range uint64(2) {
			if wc := t.one(b, i+1, transport.OpRecv, a, b); wc.Bytes != 0 || wc.HasImm != (i == 1) {
				t.failf("completion %+v", wc)
			}
		}
		t.none(a, b)
		t.well(a, b)
	}},
}

// star returns a hub with a queue pair to each of n others, all on one completion queue.
func (t *trial) star(n int, s shape) (hub *node, others []*node) {
	nodes := t.ranks(n+1, s)
	hub, others = nodes[0], nodes[1:]
	for _, x := range others {
		x.qp, _ = t.connect(x, hub)
	}
	return hub, others
}

// queues sorts completions by queue pair, and whether they are of Recvs.
func queues(wcs []transport.WC) map[string][]transport.WC {
	sorted := map[string][]transport.WC{}
	for _, wc := range wcs {
		key := fmt.Sprint(wc.QP, wc.Op == transport.OpRecv)
		sorted[key] = append(sorted[key], wc)
	}
	return sorted
}
