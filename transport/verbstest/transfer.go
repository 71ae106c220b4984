package verbstest

import (
	"bytes"
	"encoding/binary"

	"github.com/weft-mpi/weft/transport"
)

// sizes returns message lengths around all limits at which a provider may change its method.
func sizes(d transport.Device) []int {
	inline := d.Query().MaxInline
	return []int{0, 1, 7, 8, 9, 15, 63, 64, 65, 1000, inline, 4096, 16<<10 + 1, 100_000, 1 << 20}
}

// lanesOfBoth returns the lanes that both ends of a queue pair have.
func lanesOfBoth(a, b *node) (list []transport.Lane) {
	for _, l := range a.qp.OpenLanes(nil) {
		if _, there := readBytes(b, l.Lane); there {
			list = append(list, l.Lane)
		}
	}
	return list
}

// readBytes returns the bytes received over a lane for a node's Reads, and whether the lane is open.
func readBytes(n *node, lane transport.Lane) (bytes uint64, there bool) {
	for _, l := range n.qp.OpenLanes(nil) {
		if l.Lane == lane {
			return l.ReadBytes, true
		}
	}
	return 0, false
}

// slices cuts a region into at most k elements.
func slices(m transport.MR, n, k int) []transport.SGE {
	var list []transport.SGE
	for at := 0; at < n; {
		step := max(1, (n-at)/k)
		if k == 1 {
			step = n - at
		}
		list = append(list, part(m, at, step))
		at += step
		k = max(k-1, 1)
	}
	return list
}

// immediate returns a value that uses all bits.
func immediate(i int) uint32 { return uint32(i) * 0x9e3779b9 }

// place carries out an inline Write of these bytes, at least 32, with heads of all lengths.
func place(p transport.InlineWriter, key transport.Key, offset uint64, b []byte) bool {
	n := len(b) - transport.TailSize
	head := int(offset/8+uint64(n)) % (n + 1)
	return p.WriteInline(&transport.Segment{Key: key, Offset: offset, Length: uint64(len(b))}, b[:head],
		b[head:n], binary.LittleEndian.Uint64(b[n:]))
}

// placer returns a's queue pair when Writes to dst can be carried out inline.
func (t *trial) placer(a, b *node, src, dst transport.MR) transport.InlineWriter {
	t.needs(a.dev.Query().InlineWrites, "inline writes")
	t.must(a.qp.PostSend(&transport.SendWR{ID: 1, Op: transport.OpWrite, Flags: transport.FlagSignaled,
		Local: slices(src, 8, 1),
		// after a posted Write, others can be placed
		Remote: []transport.Segment{{Key: dst.Key(), Length: 8}}}))
	t.one(a, 1, transport.OpWrite, a, b)
	t.none(a, b)
	t.needs(a.qp.WriteInline(&transport.Segment{Key: dst.Key(), Length: 32}, nil, nil, 0),
		"inline writes by this queue pair")
	return a.qp
}

// copier returns a queue pair that copies between this process and the peer's memory directly.
func (t *trial) copier(n *node) transport.DirectCopier {
	t.needs(n.dev.Query().DirectCopies, "direct copies")
	return n.qp
}

// refusals calls refused for Gets or Puts of n bytes that must fail: of m, 4096 bytes that it may reach, and
// of other, 64 bytes that it may not.
func refusals(refused func(what string, n int, s transport.Segment, never bool), m, other transport.MR) {
	refused("without the right", 64, segment(other, 0, 64), true)
	refused("beyond the end", 64, segment(m, 4096-63, 64), true)
	refused("far beyond the end", 64, transport.Segment{Key: m.Key(), Offset: 1 << 63, Length: 64}, true)
	refused("by no key", 64, transport.Segment{Length: 64}, false)
	refused("by a wrong key", 64, transport.Segment{Key: m.Key() + 1<<40, Length: 64}, false)
	refused("of other lengths", 63, segment(m, 0, 64), true)
	refused("of nothing", 0, segment(m, 0, 0), true)
}

// filler fills memory with the pattern of a number.
type filler int

func (n filler) Fill(mem []byte) { fill(mem, 4, uint64(n)) }

// refuses checks that a Get, Put or Fill is refused: permanently, or for now, as any may be.
func (t *trial) refuses(what string, try func() error, never bool) {
	for range 20 {
		switch err := try(); {
		case err == nil:
			t.failf("%s", what)
		case never && err != transport.ErrNotNow:
			return
		case !never && err != transport.ErrNotNow:
			t.failf("%s: %v", what, err)
		}
	}
	if never {
		t.failf("%s is to be tried again", what)
	}
}

// moreReadsThan makes a post many more Reads at once than may be outstanding. A peer that exceeds the depth
// is terminated, so all of them complete only if a keeps to it.
func (t *trial) moreReadsThan(depth int, a, b *node) {
	const size = 3000
	n := 5 * depth
	m, dst := b.memory(n*size, all), a.memory(n*size, all)
	fill(m.Bytes(), 2, 1)
	for i := range n {
		wr := with(read(uint64(i), dst, m), transport.FlagMore) // they could all go at once
		wr.Local, wr.Remote[0] = []transport.SGE{part(dst, i*size, size)}, segment(m, i*size, size)
		t.must(a.qp.PostSend(wr))
	}
	for i, wc := range t.take(a, n, a, b) {
		if wc.ID != uint64(i) || wc.Status != transport.StatusSuccess {
			t.failf("depth %d: completion %d is %+v", depth, i, wc)
		}
	}
	t.must(check(dst.Bytes(), 2, 1))
}

var transferChecks = []Check{
	{"Write/IsPlacedAtOnce", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst := a.memory(8, all), b.memory(4096, all)
		placer := t.placer(a, b, src, dst)
		for i, n := range []int{32, 33, 39, 40, 64, 72, 100, 1000} {
			whole := make([]byte, n)
			fill(whole, 3, uint64(i))
			if !place(placer, dst.Key(), uint64(8*i), whole) {
				t.failf("a Write of %d bytes is not placed", n)
			}
			t.until("the bytes", func() bool { return check(dst.Bytes()[8*i:][:n], 3, uint64(i)) == nil },
				a, b)
		}
		t.none(a, b)
		for _, n := range []uint64{0, 8, 31, 31 + 5, ^uint64(0)} {
			if placer.WriteInline(&transport.Segment{Key: dst.Key(), Length: n}, make([]byte, 24),
				make([]byte, 5), 0) {
				t.failf("a head, 5 bytes and a tail are placed in %d bytes", n)
			}
		}
	}},
	{"Write/IsPlacedAmongWhatIsPostedUntilNothingMoreIsTaken", func(t *trial) {
		const each, writes = 1024, 10000 // more than fits an unread connection
		a, b := t.pair(shape{})
		src, dst := a.memory(each*writes, all), b.memory(each*writes, all)
		placer := t.placer(a, b, src, dst)
		placed := 0
		for i := range uint64(writes) {
			from := src.Bytes()[each*i:][:each]
			fill(from, 5, i)
			if i%5 != 0 {
				if place(placer, dst.Key(), each*i, from) {
					placed++
					continue
				}
			}
			wr := &transport.SendWR{ID: i, Op: transport.OpWrite,
				Local:  []transport.SGE{part(src, int(each*i), each)},
				Remote: []transport.Segment{{Key: dst.Key(), Offset: each * i, Length: each}}}
			for {
				err := a.qp.PostSend(wr)
				if err == nil {
					break
				}
				t.is(err, "a Write", transport.ErrQueueFull)
				t.polls(1, a, b)
			}
		}
		if placed == 0 {
			t.failf("none of %d Writes was placed", writes)
		}
		t.until("the last", func() bool { return check(dst.Bytes()[each*(writes-1):], 5, writes-1) == nil },
			a, b)
		for i := range uint64(writes) {
			t.must(check(dst.Bytes()[each*i:][:each], 5, i))
		}
		t.none(a, b)
	}},
	{"Write/IsPlacedInThePeersMemory", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst, other := a.memory(8, all), b.memory(4096, all), b.memory(64, all)
		placer := t.placer(a, b, src, dst)
		t.needs(a.dev.Query().PeerMapped, "memory of the peer that is mapped")
		b64 := []byte("seen at once, and nothing of it before, or after: 64 bytes of it")
		if place(placer, dst.Key()+1, 0, b64) {
			t.failf("placed by a key that is not valid")
		}
		for _, at := range []uint64{4096, 1 << 63, ^uint64(0)} {
			if placer.PrefetchAddr(at) != 0 {
				t.failf("something is at %d of a region of 4096", at)
			}
		}
		if placer.PrefetchAddr(72)-placer.PrefetchAddr(8) != 64 {
			t.failf("bytes 8 and 72 are at %#x and %#x", placer.PrefetchAddr(8), placer.PrefetchAddr(72))
		}
		for _, at := range []uint64{4096, 4033, 1 << 63, ^uint64(0)} {
			if place(placer, dst.Key(), at, b64) {
				t.failf("64 bytes are placed at %d of a region of 4096", at)
			}
		}
		if place(placer, dst.Key(), 0, make([]byte, 4097)) {
			t.failf("4097 bytes are placed in a region of 4096")
		}
		if !place(placer, dst.Key(), 8, b64) || string(dst.Bytes()[8:72]) != string(b64) {
			t.failf("what was written is not in the peer's memory")
		}
		if place(placer, other.Key(), 0, b64) && string(other.Bytes()) != string(b64) {
			t.failf("placed in another region than that of the key")
		}
		t.must(dst.Deregister())
		if place(placer, dst.Key(), 0, b64) {
			t.failf("placed in a region that is no more")
		}
		for _, at := range []uint64{64, 4096, ^uint64(0)} { // any offset is allowed
			placer.PrefetchAddr(at)
		}
		a.qp.Close()
		placer.PrefetchAddr(64) // although the queue pair has ended
	}},
	{"Send/ArrivesWholeInAnyCutOfItsElements", func(t *trial) {
		a, b := t.pair(shape{})
		maxElements := min(a.dev.Query().MaxSGE, 5)
		for i, n := range sizes(a.dev) {
			id := uint64(i)
			src, dst := a.memory(n, all), b.memory(n+5, all)
			fill(src.Bytes(), 1, id)
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: id, Local: slices(dst, n+5, 1+i%maxElements)}))
			t.must(a.qp.PostSend(&transport.SendWR{ID: id, Op: transport.OpSend,
				Flags: transport.FlagSignaled,
				Local: slices(src, n, 1+(i+1)%maxElements)}))
			t.one(a, id, transport.OpSend, a, b)
			if wc := t.one(b, id, transport.OpRecv, a, b); wc.Bytes != n || wc.HasImm || wc.QP != b.qp.Num() {
				t.failf("completion %+v for %d bytes", wc, n)
			}
			t.must(check(dst.Bytes()[:n], 1, id))
			t.must(zero(dst.Bytes()[n:]))
		}
		t.none(a, b)
	}},
	{"Write/ArrivesWholeAndTellsThePeerNothing", func(t *trial) {
		a, b := t.pair(shape{})
		for i, n := range sizes(a.dev) {
			if n == 0 {
				continue
			}
			id := uint64(i)
			src, m := a.memory(n, all), b.memory(n+32, transport.RemoteWrite)
			fill(src.Bytes(), 1, id)
			wr := write(id, src, m)
			wr.Local, wr.Remote[0].Offset = slices(src, n, 1+i%4), 16
			t.must(a.qp.PostSend(wr))
			t.one(a, id, transport.OpWrite, a, b)
			t.until("the bytes", func() bool { return check(m.Bytes()[16:16+n], 1, id) == nil }, a, b)
			t.must(zero(m.Bytes()[:16]))
			t.must(zero(m.Bytes()[16+n:]))
		}
		t.none(a, b)
	}},
	{"WriteImm/DeliversThroughARecvWhoseMemoryStaysUntouched", func(t *trial) {
		a, b := t.pair(shape{})
		for i, n := range sizes(a.dev) {
			id, imm := uint64(i), immediate(i)
			src, m, untouched := a.memory(n, all), b.memory(n, transport.RemoteWrite), b.memory(64, all)
			fill(src.Bytes()[:n], 1, id)
			wr := &transport.SendWR{ID: id, Op: transport.OpWriteImm, Flags: transport.FlagSignaled, Imm: imm}
			if n > 0 {
				wr.Local, wr.Remote = []transport.SGE{sge(src)}, []transport.Segment{segment(m, 0, n)}
			}
			t.must(b.qp.PostRecv(recv(id, untouched)))
			t.must(a.qp.PostSend(wr))
			if wc := t.one(b, id, transport.OpRecv, a, b); !wc.HasImm || wc.Imm != imm {
				t.failf("completion %+v, want immediate %#x", wc, imm)
			}
			t.must(check(m.Bytes()[:n], 1, id)) // delivered, so all of it is placed
			t.must(zero(untouched.Bytes()))
			t.one(a, id, transport.OpWriteImm, a, b)
		}
		t.none(a, b)
	}},
	{"Read/ArrivesWhole", func(t *trial) {
		a, b := t.pair(shape{})
		for i, n := range sizes(a.dev) {
			if n == 0 {
				continue
			}
			id := uint64(i)
			dst, m := a.memory(n+8, transport.LocalWrite), b.memory(n, transport.RemoteRead)
			fill(m.Bytes(), 2, id)
			wr := read(id, dst, m)
			wr.Local, wr.Remote[0].Length = []transport.SGE{part(dst, 0, n)}, uint64(n)
			t.must(a.qp.PostSend(wr))
			if wc := t.one(a, id, transport.OpRead, a, b); wc.Bytes != n {
				t.failf("completion %+v for %d bytes", wc, n)
			}
			t.must(check(dst.Bytes()[:n], 2, id))
			t.must(zero(dst.Bytes()[n:]))
		}
		t.none(a, b)
	}},
	{"Read/R1_NamesASetOfSegmentsOnEachSide", func(t *trial) {
		a, b := t.pair(shape{})
		limits := a.dev.Query()
		const size = 100
		for _, n := range []int{1, min(limits.MaxSGE, limits.MaxSegments)} {
			wr := &transport.SendWR{ID: uint64(n), Op: transport.OpRead, Flags: transport.FlagSignaled}
			var from, into []transport.MR
			for i := range n { // each from its own region, offset and length
				from, into = append(from, b.memory(4*size, all)), append(into, a.memory(4*size, all))
				fill(from[i].Bytes(), 2, uint64(i))
				wr.Remote = append(wr.Remote, segment(from[i], 3*i, size+i))
				wr.Local = append(wr.Local, part(into[i], 2*size-i, size+i))
			}
			t.must(a.qp.PostSend(wr))
			t.one(a, uint64(n), transport.OpRead, a, b)
			for i := range n {
				got, at := into[i].Bytes(), 2*size-i
				if !bytes.Equal(got[at:at+size+i], from[i].Bytes()[3*i:][:size+i]) {
					t.failf("segment %d of %d brought other bytes", i, n)
				}
				t.must(zero(got[:at]))
				t.must(zero(got[at+size+i:]))
			}
		}
		t.none(a, b)
	}},
	{"Read/R1_AnswersComeOverTheDesignatedLane", func(t *trial) {
		a, b := t.pair(shape{})
		const size = 300_000
		m, dst := b.memory(size, all), a.memory(size, all)
		fill(m.Bytes(), 2, 1)
		var lanes []transport.Lane
		if n := a.qp.Query().Lanes; n > 1 {
			t.until("all lanes", func() bool {
				lanes = lanesOfBoth(a, b)
				return len(lanes) == n
			}, a, b)
		}
		for i, lane := range append(lanes, transport.AnyLane, transport.MaxLane) {
			down := a.qp.Lanes().Down + b.qp.Lanes().Down
			before, open := readBytes(a, lane)
			clear(dst.Bytes())
			wr := read(uint64(i), dst, m)
			wr.Lane = lane
			t.must(a.qp.PostSend(wr))
			t.one(a, wr.ID, transport.OpRead, a, b)
			t.must(check(dst.Bytes(), 2, 1))
			after, _ := readBytes(a, lane)
			if a.qp.Lanes().Down+b.qp.Lanes().Down > down {
				continue // this may be the one that failed
			}
			if n := after - before; open && n != size {
				t.failf("%d bytes of a Read over lane %d came over it, want %d", n, lane, size)
			}
		}
		t.well(a, b)
	}},
	{"Read/R2_TheResponderWritesFromTheMemoryItself", func(t *trial) {
		a, b := t.pair(shape{})
		if a.direct() {
			return // it reads directly: no responder could copy anything
		}
		const size = 12 << 20 // more than fits an unread connection
		m, dst := b.memory(size, all), a.memory(size, all)
		fill(m.Bytes(), 2, 1)
		t.must(a.qp.PostSend(read(1, dst, m)))
		t.settle(a)
		if len(a.wcs) > 0 || !bytes.Equal(dst.Bytes()[:8], make([]byte, 8)) {
			t.failf("a Read was answered, and the responder was not driven")
		}
		t.settle(b) // now it has the request, and has sent as much as the connection takes
		const rest = size - size/8
		fill(m.Bytes()[rest:], 3, 1)
		t.one(a, 1, transport.OpRead, a, b)
		t.must(check(dst.Bytes()[:1000], 2, 1))
		if err := check(dst.Bytes()[rest:], 3, 1); err != nil {
			t.failf("the answer is of a copy of the memory: %v", err)
		}
	}},
	{"Read/R3_SegmentsCutDifferentlyOnBothSides", func(t *trial) {
		a, b := t.pair(shape{})
		rng := random(3)
		limits := a.dev.Query()
		for round := range uint64(40) {
			n := 1 + rng.IntN(20_000)
			sources := []transport.MR{b.memory(n, all), b.memory(n, all), b.memory(n, all)}
			dst := a.memory(n, all)
			want := make([]byte, 0, n)
			wr := &transport.SendWR{ID: round, Op: transport.OpRead, Flags: transport.FlagSignaled,
				Local: slices(dst, n, 1+rng.IntN(min(limits.MaxSGE, 7)))}
			for i, m := range sources {
				fill(m.Bytes(), uint64(10+i), round)
			}
			for i, s := range slices(dst, n, 1+rng.IntN(min(limits.MaxSegments, 5))) {
				m := sources[i%3]
				off := rng.IntN(n - s.Length + 1)
				wr.Remote = append(wr.Remote, segment(m, off, s.Length))
				want = append(want, m.Bytes()[off:off+s.Length]...)
			}
			t.must(a.qp.PostSend(wr))
			t.one(a, round, transport.OpRead, a, b)
			if !bytes.Equal(dst.Bytes(), want) {
				t.failf("round %d: a Read of %d segments into %d elements brought other bytes", round,
					len(wr.Remote), len(wr.Local))
			}
		}
	}},
	{"Read/R4_CompletesWhenEveryEarlierByteIsPlaced", func(t *trial) {
		a, b := t.pair(shape{})
		big, dst := b.memory(200_000, all), a.memory(200_000, all)
		back, m := b.memory(50_000, all), a.memory(50_000, all)
		for round := range uint64(20) {
			fill(big.Bytes(), 2, round)
			fill(back.Bytes(), 3, round)
			t.must(b.qp.PostSend(without(write(0, back, m), transport.FlagSignaled)))
			t.settle(b) // the Write is in flight before the Read can be answered
			t.must(a.qp.PostSend(read(round, dst, big)))
			t.settle(b) // and so is the answer, so a receives both together
			t.one(a, round, transport.OpRead, a, b)
			t.must(check(dst.Bytes(), 2, round))
			if err := check(m.Bytes(), 3, round); err != nil {
				t.failf("round %d: the Read is complete before an earlier Write: %v", round, err)
			}
		}
		t.none(a, b)
	}},
	{"Read/R5_MoreThanTheDepthWaitTheirTurn", func(t *trial) {
		for _, reads := range [][2]int{{1, 1}, {2, 2}, {8, 8}, {8, 2}, {1, 8}} {
			nodes := t.ranks(2, shape{})
			a, b := nodes[0], nodes[1]
			a.shape.reads, b.shape.reads = reads[0], reads[1]
			a.qp, b.qp = t.connect(a, b)
			depth := min(reads[0], reads[1])
			for _, n := range nodes {
				if got := n.qp.Query().PeerReads; got != depth {
					t.failf("rank %d: a depth of %d was negotiated between %v", n.rank, got, reads)
				}
			}
			for _, ends := range both(a, b) {
				t.moreReadsThan(depth, ends[0], ends[1])
			}
			t.well(a, b)
			t.closeAll()
		}
	}},
	{"Read/BothSidesAtOnce", func(t *trial) {
		a, b := t.pair(shape{})
		const reads = 20
		dst := map[*node][]transport.MR{}
		for _, ends := range both(a, b) {
			n, peer := ends[0], ends[1]
			for i := range uint64(reads) {
				m := peer.memory(10_000, all)
				dst[n] = append(dst[n], n.memory(10_000, all))
				fill(m.Bytes(), uint64(n.rank), i)
				t.must(n.qp.PostSend(read(i, dst[n][i], m)))
			}
		}
		t.until("all Reads", func() bool { return len(a.wcs) == reads && len(b.wcs) == reads }, a, b)
		for n, list := range dst {
			for i, m := range list {
				t.must(check(m.Bytes(), uint64(n.rank), uint64(i)))
			}
		}
	}},
	{"Write/IsPutAtOnce", func(t *trial) {
		a, b := t.pair(shape{})
		to := t.copier(a)
		m, other := b.memory(4096, transport.RemoteWrite), b.memory(64, transport.RemoteRead)
		heap, err := b.pd.Register(make([]byte, 4096), transport.RemoteWrite)
		t.must(err)
		into := []transport.MR{m}
		for range 50 {
			// the system may refuse that
			if seg := segment(heap, 0, 64); to.Put(make([]byte, 64), &seg) == nil {
				into = append(into, heap)
				break
			}
		}
		for round, n := range []int{1, 7, 8, 64, 1000, 4000} {
			for _, m := range into {
				src := make([]byte, n)
				fill(src, 4, uint64(round))
				clear(m.Bytes())
				seg := segment(m, 4096-n-8, n)
				t.until("a Put", func() bool { return to.Put(src, &seg) == nil }, a, b)
				if !bytes.Equal(src, m.Bytes()[4096-n-8:4096-8]) {
					t.failf("a Put of %d bytes placed others", n)
				}
				t.must(zero(m.Bytes()[:4096-n-8]))
				t.must(zero(m.Bytes()[4096-8:]))
			}
		}
		refused := func(what string, n int, seg transport.Segment, never bool) {
			t.refuses("a Put "+what, func() error { return to.Put(make([]byte, n), &seg) }, never)
		}
		refusals(refused, m, other)
		for _, m := range []transport.MR{m, heap} {
			stale := segment(m, 0, 64)
			t.must(m.Deregister())
			refused("to a region that is no more", 64, stale, false)
		}
		t.well(a, b)
		last := segment(b.memory(64, all), 0, 64)
		a.qp.Close()
		refused("after Close", 64, last, false)
		t.none(a, b)
	}},
	{"Write/IsFilledAtOnce", func(t *trial) {
		a, b := t.pair(shape{})
		to := t.copier(a)
		m, other := b.memory(4096, transport.RemoteWrite), b.memory(64, transport.RemoteRead)
		for round, n := range []int{1, 7, 8, 64, 1000, 4000} {
			clear(m.Bytes())
			seg := segment(m, 4096-n-8, n)
			t.until("a Fill", func() bool { return to.Fill(&seg, filler(round)) == nil }, a, b)
			t.must(check(m.Bytes()[4096-n-8:4096-8], 4, uint64(round)))
			t.must(zero(m.Bytes()[:4096-n-8]))
			t.must(zero(m.Bytes()[4096-8:]))
		}
		refused := func(what string, seg transport.Segment, never bool) {
			t.refuses("a Fill "+what, func() error { return to.Fill(&seg, filler(0)) }, never)
		}
		refused("without the right", segment(other, 0, 64), true)
		refused("beyond the end", segment(m, 4096-63, 64), true)
		refused("far beyond the end", transport.Segment{Key: m.Key(), Offset: 1 << 63, Length: 64}, true)
		refused("of all there is", transport.Segment{Key: m.Key(), Length: 1<<63 - 1}, true)
		refused("by no key", transport.Segment{Length: 64}, false)
		refused("of nothing", segment(m, 0, 0), true)
		stale := segment(m, 0, 64)
		t.must(m.Deregister())
		refused("of a region that is no more", stale, false)
		t.well(a, b)
		t.none(a, b)
	}},
	{"Write/IsPutAtOnceWhereNoReadMayBeOutstanding", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		a.shape.reads = 0
		a.qp, b.qp = t.connect(a, b)
		to := t.copier(a)
		m := b.memory(64, all)
		seg := segment(m, 0, 64)
		src := make([]byte, 64)
		fill(src, 4, 1)
		t.until("a Put", func() bool { return to.Put(src, &seg) == nil }, a, b)
		t.must(check(m.Bytes(), 4, 1))
		t.until("a Fill", func() bool { return to.Fill(&seg, filler(2)) == nil }, a, b)
		t.must(check(m.Bytes(), 4, 2))
		t.refuses("a Get", func() error { return to.Get(src, &seg) }, true)
		t.well(a, b)
	}},
	{"Write/IsPutAtOnceAfterEarlierWrites", func(t *trial) {
		a, b := t.pair(shape{})
		to := t.copier(a)
		src, m := a.memory(20_000, all), b.memory(20_000, all)
		buf := make([]byte, 20_000)
		heap, err := b.pd.Register(buf, all)
		t.must(err)
		for round := range uint64(50) {
			for _, mr := range []transport.MR{m, heap} {
				fill(src.Bytes(), 6, 2*round)
				t.must(a.qp.PostSend(without(write(0, src, mr), transport.FlagSignaled)))
				second, seg := make([]byte, 20_000), segment(mr, 0, 20_000)
				fill(second, 6, 2*round+1)
				var err error
				t.until("a Put", func() bool {
					err = to.Put(second, &seg)
					return err != transport.ErrNotNow
				}, a, b)
				if mr == heap && err != nil {
					continue // the system may refuse that
				}
				t.must(err)
				t.must(check(mr.Bytes(), 6, 2*round+1))
			}
		}
		t.must(heap.Deregister())
		t.none(a, b)
	}},
	{"Write/DirectCopiesDoNotOvertakeAWriteThatWaits", func(t *trial) {
		a, b := t.pair(shape{})
		direct := t.copier(a)
		const n = 64
		src, m := a.memory(n, all), b.memory(n, all)
		dst, other := a.memory(n, all), b.memory(n, all)
		seg := segment(m, 0, n)
		got := make([]byte, n)
		for name, try := range map[string]func() error{
			"a Get": func() error { return direct.Get(got, &seg) },
			"a Put": func() error {
				fill(got, 4, 0)
				return direct.Put(got, &seg)
			},
			"a Fill": func() error {
				fill(got, 4, 0)
				return direct.Fill(&seg, filler(0))
			},
		} {
			for round := range uint64(10) {
				fill(src.Bytes(), 5, round)
				second := write(0, src, m)
				second.Local = slices(src, n, 2)
				t.must(a.qp.PostSend(without(read(0, dst, other), transport.FlagSignaled)))
				t.must(a.qp.PostSend(without(second, transport.FlagSignaled)))
				t.until(name, func() bool { return try() == nil }, a, b)
				if name == "a Get" {
					t.must(check(got, 5, round))
				}
				t.well(a, b) // the Write is placed
				if !bytes.Equal(got, m.Bytes()) {
					t.failf("round %d: %s has overtaken a Write that was posted before it", round, name)
				}
			}
		}
		t.none(a, b)
	}},
	{"Read/IsCarriedOutAtOnce", func(t *trial) {
		a, b := t.pair(shape{})
		get := t.copier(a)
		m, other := b.memory(4096, transport.RemoteRead), b.memory(64, transport.RemoteWrite)
		for round, n := range []int{1, 7, 8, 64, 1000, 4096} {
			fill(m.Bytes(), 4, uint64(round))
			dst := make([]byte, n+8)
			from := segment(m, 4096-n, n)
			t.until("a Get", func() bool { return get.Get(dst[:n], &from) == nil }, a, b)
			if !bytes.Equal(dst[:n], m.Bytes()[4096-n:]) {
				t.failf("a Get of %d bytes brought others", n)
			}
			t.must(zero(dst[n:]))
		}
		refused := func(what string, n int, from transport.Segment, never bool) {
			t.refuses("a Get "+what, func() error { return get.Get(make([]byte, n), &from) }, never)
		}
		refusals(refused, m, other)
		stale := segment(m, 0, 64)
		t.must(m.Deregister())
		refused("of a region that is no more", 64, stale, false)
		t.well(a, b)
		last := segment(b.memory(64, all), 0, 64)
		a.qp.Close()
		refused("after Close", 64, last, false)
		t.none(a, b)
	}},
	{"Read/IsCarriedOutAtOnceAfterEarlierWrites", func(t *trial) {
		a, b := t.pair(shape{})
		get := t.copier(a)
		src, m := a.memory(20_000, all), b.memory(20_000, all)
		buf := make([]byte, 20_000)
		heap, err := b.pd.Register(buf, all)
		t.must(err)
		into := []transport.MR{m}
		for range 50 {
			// the system may refuse that
			if from := segment(heap, 0, 64); get.Get(make([]byte, 64), &from) == nil {
				into = append(into, heap)
				break
			}
		}
		for round := range uint64(50) {
			for _, to := range into {
				fill(src.Bytes(), 6, round)
				t.must(a.qp.PostSend(without(write(0, src, to), transport.FlagSignaled)))
				dst, from := make([]byte, 20_000), segment(to, 0, 20_000)
				t.until("a Get", func() bool { return get.Get(dst, &from) == nil }, a, b)
				t.must(check(dst, 6, round))
			}
		}
		t.must(heap.Deregister())
		t.none(a, b)
	}},
	{"Inline/BuffersAreThePostersWhenTheCallReturns", func(t *trial) {
		a, b := t.pair(shape{})
		n := min(a.dev.Query().MaxInline, 64)
		src, m, dst := a.memory(n, all), b.memory(40*n, all), b.memory(n, all)
		for i := range 40 {
			fill(src.Bytes(), 1, uint64(i))
			wr := with(without(write(uint64(i), src, m), transport.FlagSignaled), transport.FlagInline)
			wr.Remote[0].Offset = uint64(i * n)
			t.must(a.qp.PostSend(wr))
			clear(src.Bytes())
		}
		t.must(b.qp.PostRecv(recv(1, dst)))
		fill(src.Bytes(), 1, 99)
		t.must(a.qp.PostSend(with(send(1, src), transport.FlagInline)))
		clear(src.Bytes())
		t.one(b, 1, transport.OpRecv, a, b)
		for i := range 40 {
			t.must(check(m.Bytes()[i*n:(i+1)*n], 1, uint64(i)))
		}
		t.must(check(dst.Bytes(), 1, 99))
	}},
	{"Unsignalled/CompletesOnlyIfItFails", func(t *trial) {
		a, b := t.pair(shape{})
		src, m, dst := a.memory(64, all), b.memory(64, all), b.memory(64, all)
		t.must(b.qp.PostRecv(recv(1, dst)))
		for _, wr := range []*transport.SendWR{write(2, src, m), send(3, src), read(4, src, m)} {
			t.must(a.qp.PostSend(without(wr, transport.FlagSignaled)))
		}
		t.must(a.qp.PostSend(write(5, src, m)))
		t.one(a, 5, transport.OpWrite, a, b)
		t.one(b, 1, transport.OpRecv, a, b)
		t.none(a, b)
		// Reads, so that they cannot be done before the cut: the peer is not driven
		for i := range uint64(4) {
			t.must(a.qp.PostSend(without(read(10+i, src, m), transport.FlagSignaled)))
		}
		a.qp.Abort(nil)
		for i, wc := range t.take(a, 4, a) {
			if wc.ID != 10+uint64(i) || wc.Status == transport.StatusSuccess {
				t.failf("completion %d is %+v, want a failure of request %d", i, wc, 10+i)
			}
		}
	}},
	{"Unsignalled/DoNotFillTheQueueForGood", func(t *trial) {
		a, b := t.pair(shape{sendWR: 4})
		src, m := a.memory(64, all), b.memory(64, all)
		for i := range uint64(200) {
			wr := without(write(i, src, m), transport.FlagSignaled)
			t.until("room in the send queue", func() bool {
				err := a.qp.PostSend(wr)
				if err != nil {
					t.is(err, "a Write", transport.ErrQueueFull)
				}
				return err == nil
			}, a, b)
		}
		t.none(a, b)
	}},
	{"More/FlushSendsWhatWasHeldBack", func(t *trial) {
		a, b := t.pair(shape{})
		t.well(a, b)
		src, dst := a.memory(64, all), b.memory(64, all)
		for round := range uint64(10) {
			fill(src.Bytes(), 1, round)
			for i := range uint64(3) {
				t.must(b.qp.PostRecv(recv(i, dst)))
				t.must(a.qp.PostSend(with(send(i, src), transport.FlagMore)))
			}
			a.qp.Flush()
			t.take(b, 3, b) // the sender is not driven
			t.must(check(dst.Bytes(), 1, round))
			t.take(a, 3, a, b)
		}
	}},
	{"More/PollSendsWhatWasHeldBack", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst := a.memory(64, all), b.memory(64, all)
		for i := range uint64(3) {
			t.must(b.qp.PostRecv(recv(i, dst)))
			t.must(a.qp.PostSend(with(send(i, src), transport.FlagMore)))
		}
		t.take(b, 3, a, b)
		t.take(a, 3, a, b)
	}},
}
