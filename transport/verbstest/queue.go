package verbstest

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// wrongRequests returns invalid requests, by what is wrong with them.
func wrongRequests(t *trial, a, b *node) map[string]*transport.SendWR {
	limits := a.dev.Query()
	local, m := a.memory(64, all), b.memory(64, all)
	readOnly := a.memory(64, transport.RemoteRead)
	large := a.memory(limits.MaxInline+1, all)
	pd, err := a.dev.AllocPD()
	t.must(err)
	foreign, err := pd.Alloc(64, all)
	t.must(err)
	elements := func(e ...transport.SGE) *transport.SendWR {
		return &transport.SendWR{ID: 1, Op: transport.OpSend, Flags: transport.FlagSignaled, Local: e}
	}
	segments := func(op transport.Opcode, s ...transport.Segment) *transport.SendWR {
		return &transport.SendWR{ID: 1, Op: op, Flags: transport.FlagSignaled,
			Local: []transport.SGE{sge(local)}, Remote: s}
	}
	opcode := func(op transport.Opcode) *transport.SendWR {
		wr := send(1, local)
		wr.Op = op
		return wr
	}
	over := func(lane transport.Lane, wr *transport.SendWR) *transport.SendWR {
		wr.Lane = lane
		return wr
	}
	t.must(a.qp.PostSend(write(0, local, m))) // further Writes to m may take a shorter path
	t.one(a, 0, transport.OpWrite, a, b)
	const maxInt = int(^uint(0) >> 1)
	return map[string]*transport.SendWR{
		"opcode 0":                    opcode(0),
		"opcode of a receive":         opcode(transport.OpRecv),
		"opcode 200":                  opcode(200),
		"no region":                   elements(transport.SGE{Length: 8}),
		"region of another domain":    elements(sge(foreign)),
		"negative offset":             elements(part(local, -1, 8)),
		"negative length":             elements(part(local, 0, -1)),
		"offset beyond the region":    elements(part(local, 65, 0)),
		"length beyond the region":    elements(part(local, 0, 65)),
		"end beyond the region":       elements(part(local, 60, 5)),
		"offset plus length overflow": elements(part(local, maxInt, maxInt)),
		"length overflow":             elements(part(local, 8, maxInt)),
		"too many elements":           elements(make([]transport.SGE, limits.MaxSGE+1)...),
		"too long inline":             with(send(1, large), transport.FlagInline),
		"inline Read":                 with(read(1, local, m), transport.FlagInline),
		"Send with a remote segment":  segments(transport.OpSend, segment(m, 0, 64)),
		"Write to nowhere":            segments(transport.OpWrite),
		"Write to two segments":       segments(transport.OpWrite, segment(m, 0, 32), segment(m, 32, 32)),
		"Write longer than its place": segments(transport.OpWrite, segment(m, 0, 63)),
		"Write with a longer place":   segments(transport.OpWriteImm, segment(m, 0, 65)),
		"Read of nothing":             segments(transport.OpRead),
		"Read without a segment":      {ID: 1, Op: transport.OpRead, Flags: transport.FlagSignaled},
		"Read longer than its place":  segments(transport.OpRead, segment(m, 0, 64), segment(m, 0, 1)),
		"Read of lengths that wrap": segments(transport.OpRead, segment(m, 0, 64),
			transport.Segment{Key: m.Key(), Length: 1 << 63},
			transport.Segment{Key: m.Key(), Length: 1 << 63}),
		"Read of too many segments": segments(transport.OpRead,
			make([]transport.Segment, limits.MaxSegments+1)...),
		"Read into memory without a right": read(1, readOnly, m),
		"Read over a lane that cannot be":  over(transport.MaxLane+1, read(1, local, m)),
		"Send over a designated lane":      over(1, send(1, local)),
		"Write over a designated lane":     over(1, write(1, local, m)),
		"unsignaled Write over a designated lane": over(1,
			without(write(1, local, m), transport.FlagSignaled)),
	}
}

var requestChecks = []Check{
	{"QP/N9_QueryTellsTheContext", func(t *trial) {
		a, b := t.pair(shape{sendWR: 17, recvWR: 19, reads: 3, separate: true})
		for _, ends := range both(a, b) {
			n, peer := ends[0], ends[1]
			got := n.qp.Query()
			want := transport.QPConfig{PD: n.pd, SendCQ: n.sendCQ, RecvCQ: n.recvCQ, SendWR: 17, RecvWR: 19,
				Reads: 3}
			if got.QPConfig != want {
				t.failf("rank %d: shape %+v, want %+v", n.rank, got.QPConfig, want)
			}
			if got.Num != n.qp.Num() || got.State != transport.StateReady || got.Peer != peer.rank {
				t.failf("rank %d: %+v", n.rank, got)
			}
			if got.PeerRecv != 19 || got.PeerReads != 3 || got.Lanes < 1 {
				t.failf("rank %d: the two ends have not agreed on %d Recvs, %d Reads, %d lanes", n.rank,
					got.PeerRecv, got.PeerReads, got.Lanes)
			}
			if got.Local == "" || got.Remote == "" {
				t.failf("rank %d: addresses %q and %q", n.rank, got.Local, got.Remote)
			}
		}
	}},
	{"QP/N9_WrongRequestIsRefusedAtTheCallAndLeavesNoTrace", func(t *trial) {
		a, b := t.pair(shape{})
		for what, wr := range wrongRequests(t, a, b) {
			t.is(a.qp.PostSend(wr), what, transport.ErrInvalid, transport.ErrAccess)
		}
		t.is(a.qp.PostSend(nil), "nil", transport.ErrInvalid)
		t.none(a, b)
		t.well(a, b)
	}},
	{"QP/N9_WrongReceiveIsRefusedAtTheCallAndLeavesNoTrace", func(t *trial) {
		a, b := t.pair(shape{})
		readOnly, m := b.memory(64, transport.RemoteRead), b.memory(64, all)
		pd, err := b.dev.AllocPD()
		t.must(err)
		foreign, err := pd.Alloc(64, all)
		t.must(err)
		for what, e := range map[string][]transport.SGE{
			"memory without a right":   {sge(readOnly)},
			"region of another domain": {sge(foreign)},
			"no region":                {{Length: 8}},
			"beyond the region":        {part(m, 60, 5)},
			"negative offset":          {part(m, -1, 5)},
			"too many elements":        make([]transport.SGE, b.dev.Query().MaxSGE+1),
		} {
			t.is(b.qp.PostRecv(&transport.RecvWR{ID: 1, Local: e}), what, transport.ErrInvalid,
				transport.ErrAccess)
		}
		t.is(b.qp.PostRecv(nil), "nil", transport.ErrInvalid)
		t.none(a, b)
		t.well(a, b)
	}},
	{"QP/TheStructOfARequestIsThePostersAtOnce", func(t *trial) {
		a, b := t.pair(shape{})
		src, m := a.memory(64, all), b.memory(64, all)
		fill(src.Bytes(), 1, 1)
		wr := write(1, src, m)
		t.must(a.qp.PostSend(wr))
		wr.Local[0], wr.Remote[0], *wr = transport.SGE{}, transport.Segment{}, transport.SendWR{}
		t.one(a, 1, transport.OpWrite, a, b)
		t.until("the bytes", func() bool { return check(m.Bytes(), 1, 1) == nil }, a, b)
	}},
	{"QP/BeyondTheSendQueuesDepthIsErrQueueFullAndRecovers", func(t *trial) {
		const depth = 8
		a, b := t.pair(shape{sendWR: depth, reads: 2})
		dst, m := a.memory(8, all), b.memory(8, all)
		fill(m.Bytes(), 2, 2)
		for round := range uint64(5) {
			for i := range uint64(depth) { // Reads, for they need the peer, which is not driven
				if err := a.qp.PostSend(read(round*depth+i, dst, m)); err != nil {
					t.failf("round %d: request %d of a queue of %d: %v", round, i, depth, err)
				}
			}
			for range 3 {
				t.is(a.qp.PostSend(read(999, dst, m)), "one too many", transport.ErrQueueFull)
			}
			for i, wc := range t.take(a, depth, a, b) {
				if wc.ID != round*depth+uint64(i) || wc.Status != transport.StatusSuccess {
					t.failf("round %d: completion %d is %+v", round, i, wc)
				}
			}
		}
		t.none(a, b)
		t.well(a, b)
	}},
	{"QP/BeyondTheReceiveQueuesDepthIsErrQueueFullAndRecovers", func(t *trial) {
		const depth = 8
		a, b := t.pair(shape{recvWR: depth})
		src, dst := a.memory(8, all), b.memory(8, all)
		for range 3 {
			for i := range uint64(depth) {
				t.must(b.qp.PostRecv(recv(i, dst)))
			}
			t.is(b.qp.PostRecv(recv(999, dst)), "one too many", transport.ErrQueueFull)
			for i := range uint64(depth) {
				t.must(a.qp.PostSend(send(i, src)))
				t.one(a, i, transport.OpSend, a, b)
				t.one(b, i, transport.OpRecv, a, b)
			}
		}
		t.none(a, b)
	}},
	{"QP/ManySendsThroughAShortQueueAllArrive", func(t *trial) {
		const depth, n = 4, 300
		a, b := t.pair(shape{sendWR: depth, recvWR: 64})
		src, dst := a.memory(8*n, all), b.memory(8*n, all)
		fill(src.Bytes(), 1, 1)
		sent, posted, full := 0, 0, 0
		for sent < n {
			for posted < n && posted < len(b.wcs)+32 {
				t.must(b.qp.PostRecv(&transport.RecvWR{ID: uint64(posted),
					Local: []transport.SGE{part(dst, 8*posted, 8)}}))
				posted++
			}
			if sent == posted { // a provider may complete Sends before they have arrived
				t.until("a Recv to be used", func() bool { return posted < len(b.wcs)+32 }, a, b)
				continue
			}
			wr := send(uint64(sent), src)
			wr.Local[0] = part(src, 8*sent, 8)
			switch err := a.qp.PostSend(wr); {
			case err == nil:
				sent++
			default:
				t.is(err, "a Send", transport.ErrQueueFull)
				full++
				if full > 1e6 {
					t.failf("the queue never has room again")
				}
				a.poll()
				b.poll()
			}
		}
		t.until("all messages", func() bool { return len(a.wcs) == n && len(b.wcs) == n }, a, b)
		for i := range n {
			if a.wcs[i].ID != uint64(i) || b.wcs[i].ID != uint64(i) {
				t.failf("completions %d are %+v and %+v", i, a.wcs[i], b.wcs[i])
			}
		}
		t.must(check(dst.Bytes(), 1, 1))
	}},
	{"QP/NumbersAreNeverUsedTwice", func(t *trial) {
		nodes := t.ranks(2, shape{})
		seen := map[string]bool{}
		for range 3 {
			qa, qb := t.connect(nodes[0], nodes[1])
			for i, q := range []transport.QP{qa, qb} {
				key := fmt.Sprint(i, q.Num())
				if seen[key] {
					t.failf("rank %d: number %d was used before", i, q.Num())
				}
				seen[key] = true
				q.Abort(nil)
			}
			qa.Release()
			qb.Release()
		}
	}},
}
