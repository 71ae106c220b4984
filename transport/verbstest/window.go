package verbstest

import (
	"github.com/weft-mpi/weft/transport"
)

const windowed = transport.LocalWrite | transport.BindWindow // peers reach the region only through windows

func (n *node) window() transport.MW {
	w, err := n.pd.AllocMW()
	n.t.must(err)
	return w
}

func bind(id uint64, w transport.MW, m transport.MR, off, n int, access transport.Access) *transport.SendWR {
	return &transport.SendWR{ID: id, Op: transport.OpBind, Flags: transport.FlagSignaled,
		Bind: &transport.Bind{Window: w, MR: m, Offset: off, Length: n, Access: access}}
}

func invalidate(id uint64, key transport.Key) *transport.SendWR {
	return &transport.SendWR{ID: id, Op: transport.OpInvalidate, Flags: transport.FlagSignaled, Key: key}
}

func sendInvalidate(id uint64, m transport.MR, key transport.Key) *transport.SendWR {
	wr := send(id, m)
	wr.Op, wr.Key = transport.OpSendInvalidate, key
	return wr
}

// through makes a request use key in place of its region's.
func through(key transport.Key, wr *transport.SendWR) *transport.SendWR {
	for i := range wr.Remote {
		wr.Remote[i].Key = key
	}
	return wr
}

// bound binds a window and waits for the completion.
func (t *trial) bound(n *node, q transport.QP, w transport.MW, m transport.MR, off, size int,
	access transport.Access) transport.Key {
	t.must(q.PostSend(bind(0xb1, w, m, off, size, access)))
	t.one(n, 0xb1, transport.OpBind, n)
	if w.Key() == 0 {
		t.failf("a window that is bound has no key")
	}
	return w.Key()
}

const remote = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

// attempts returns one request of each kind for 8 bytes at an offset of a key, by the right that it needs.
func attempts(a *node, key transport.Key, off int) map[transport.Access]*transport.SendWR {
	local := a.memory(8, all)
	fill(local.Bytes(), 1, 1)
	list := map[transport.Access]*transport.SendWR{}
	for right, op := range map[transport.Access]transport.Opcode{transport.RemoteRead: transport.OpRead,
		transport.RemoteWrite: transport.OpWrite, transport.RemoteAtomic: transport.OpFetchAdd} {
		list[right] = &transport.SendWR{ID: 5, Op: op, Flags: transport.FlagSignaled, Operand: 1,
			Local:  []transport.SGE{sge(local)},
			Remote: []transport.Segment{{Key: key, Offset: uint64(off), Length: 8}}}
	}
	return list
}

// unreachable returns a check that a key does not work: setup makes a pair and the key, and returns memory
// that must stay zero.
func unreachable(setup func(t *trial) (a, b *node, key transport.Key, m transport.MR)) func(*trial) {
	return func(t *trial) {
		for _, right := range []transport.Access{transport.RemoteRead, transport.RemoteWrite,
			transport.RemoteAtomic} {
			a, b, key, m := setup(t)
			t.refused(a, b, attempts(a, key, 0)[right])
			t.must(zero(m.Bytes()))
			t.closeAll()
		}
	}
}

func wrongBinds(t *trial, a, b *node) map[string]*transport.SendWR {
	w, m := a.window(), a.memory(64, windowed)
	pd, err := a.dev.AllocPD()
	t.must(err)
	strange, err := pd.AllocMW()
	t.must(err)
	foreign, err := pd.Alloc(64, windowed)
	t.must(err)
	gone := a.window()
	t.must(gone.Deallocate())
	good := func(change func(*transport.SendWR)) *transport.SendWR {
		wr := bind(1, w, m, 8, 16, transport.RemoteRead)
		change(wr)
		return wr
	}
	const maxInt = int(^uint(0) >> 1)
	return map[string]*transport.SendWR{
		"nothing":                  good(func(wr *transport.SendWR) { wr.Bind = nil }),
		"no window":                bind(1, nil, m, 0, 8, transport.RemoteRead),
		"window of another domain": bind(1, strange, m, 0, 8, transport.RemoteRead),
		"deallocated window":       bind(1, gone, m, 0, 8, transport.RemoteRead),
		"no region":                bind(1, w, nil, 0, 8, transport.RemoteRead),
		"region of another domain": bind(1, w, foreign, 0, 8, transport.RemoteRead),
		"region without the right": bind(1, w, a.memory(64, allAtomic), 0, 8, transport.RemoteRead),
		"write to a read-only region": bind(1, w, a.memory(64, transport.BindWindow), 0, 8,
			transport.RemoteWrite),
		"atomics on a read-only region": bind(1, w, a.memory(64, transport.BindWindow), 0, 8,
			transport.RemoteAtomic),
		"no rights":                   bind(1, w, m, 0, 8, 0),
		"rights of the owner":         bind(1, w, m, 0, 8, transport.RemoteRead|transport.LocalWrite),
		"right to bind":               bind(1, w, m, 0, 8, transport.RemoteRead|transport.BindWindow),
		"unknown rights":              bind(1, w, m, 0, 8, transport.RemoteRead|1<<15),
		"no bytes":                    bind(1, w, m, 0, 0, transport.RemoteRead),
		"negative offset":             bind(1, w, m, -1, 8, transport.RemoteRead),
		"negative length":             bind(1, w, m, 8, -1, transport.RemoteRead),
		"beyond the region":           bind(1, w, m, 60, 5, transport.RemoteRead),
		"offset and length that wrap": bind(1, w, m, maxInt, maxInt, transport.RemoteRead),
		"atomics from an odd address": bind(1, w, m, 4, 8, transport.RemoteAtomic),
		"with elements": good(func(wr *transport.SendWR) {
			wr.Local = []transport.SGE{sge(m)}
		}),
		"with segments": good(func(wr *transport.SendWR) {
			wr.Remote = []transport.Segment{segment(m, 0, 8)}
		}),
		"inline":                       good(func(wr *transport.SendWR) { wr.Flags |= transport.FlagInline }),
		"invalidate no key":            invalidate(1, 0),
		"invalidate a guessed key":     invalidate(1, 0x123456789),
		"invalidate a region":          invalidate(1, m.Key()),
		"invalidate the peer's region": invalidate(1, b.memory(8, all).Key()),
		"send-invalidate to remote": good(func(wr *transport.SendWR) {
			*wr = *through(7,
				write(1, m, m))
			wr.Op = transport.OpSendInvalidate
		}),
		"send-invalidate beyond a region": good(func(wr *transport.SendWR) {
			*wr = *sendInvalidate(1, m, 7)
			wr.Local[0].Length = 65
		}),
	}
}

var windowChecks = []Check{
	{"MW/GivesItsPartOfARegionAndNoMore", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst, m := a.memory(16, all), a.memory(16, all), b.memory(64, windowed)
		fill(m.Bytes(), 2, 2)
		fill(src.Bytes(), 1, 1)
		key := t.bound(b, b.qp, b.window(), m, 24, 16, remote)
		before := append([]byte(nil), m.Bytes()...)
		t.must(a.qp.PostSend(through(key, read(1, dst, m)))) // offset 0 is the window's first byte
		t.one(a, 1, transport.OpRead, a, b)
		t.must(equal(dst.Bytes(), before[24:40]))
		t.must(a.qp.PostSend(through(key, write(2, src, m))))
		t.one(a, 2, transport.OpWrite, a, b)
		was := *word(src, 8)
		t.same("the original", t.original(a, b, through(key, fetchAdd(3, dst, m, 8, 5))), was)
		copy(before[24:], src.Bytes())
		t.must(equal(m.Bytes()[:32], before[:32]))
		t.same("the word", *word(m, 32), was+5)
		t.must(equal(m.Bytes()[40:], before[40:]))
		wr := through(key, write(4, src, m)) // an immediate reports the arrival
		wr.Op = transport.OpWriteImm
		t.must(b.qp.PostRecv(&transport.RecvWR{ID: 5}))
		t.must(a.qp.PostSend(wr))
		t.one(b, 5, transport.OpRecv, a, b)
		t.one(a, 4, transport.OpWriteImm, a, b)
		t.must(equal(m.Bytes()[24:40], src.Bytes()))
		t.none(a, b)
		t.well(a, b)
	}},
	{"MW/KeyCanBeSentRightAfterTheBind", func(t *trial) {
		a, b := t.pair(shape{})
		told, heard, src, m := b.memory(8, all), a.memory(8, all), a.memory(8, all), b.memory(64, windowed)
		w := b.window()
		for round := range uint64(30) {
			fill(src.Bytes(), 1, round)
			t.must(a.qp.PostRecv(recv(1, heard)))
			t.must(b.qp.PostSend(bind(2, w, m, 8, 8, transport.RemoteWrite)))
			*word(told, 0) = uint64(w.Key())
			t.must(b.qp.PostSend(send(3, told)))
			t.one(a, 1, transport.OpRecv, a, b)
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: 4}))
			wr := through(transport.Key(*word(heard, 0)), write(5, src, m))
			wr.Op = transport.OpWriteImm
			t.must(a.qp.PostSend(wr))
			t.one(b, 2, transport.OpBind, a, b)
			t.one(b, 3, transport.OpSend, a, b)
			t.one(b, 4, transport.OpRecv, a, b)
			t.one(a, 5, transport.OpWriteImm, a, b)
			t.must(check(m.Bytes()[8:16], 1, round))
		}
		t.must(zero(m.Bytes()[:8]))
		t.must(zero(m.Bytes()[16:]))
	}},
	{"MW/R6_OutsideItsRangeIsRefused", func(t *trial) {
		for _, off := range []int{8, 16, 24, 32, -8} { // of a window of 12 bytes
			for _, right := range []transport.Access{transport.RemoteRead, transport.RemoteWrite,
				transport.RemoteAtomic} {
				a, b := t.pair(shape{})
				m := b.memory(64, windowed|remote)
				key := t.bound(b, b.qp, b.window(), m, 16, 12, remote)
				t.refused(a, b, attempts(a, key, off)[right])
				t.must(zero(m.Bytes()))
				t.closeAll()
			}
		}
	}},
	{"MW/R6_WithoutTheRightIsRefused", func(t *trial) {
		for _, right := range []transport.Access{transport.RemoteRead, transport.RemoteWrite,
			transport.RemoteAtomic} {
			a, b := t.pair(shape{})
			m := b.memory(64, windowed|remote) // the region's own rights do not matter
			key := t.bound(b, b.qp, b.window(), m, 16, 16, remote&^right)
			t.refused(a, b, attempts(a, key, 0)[right])
			t.must(zero(m.Bytes()))
			t.closeAll()
		}
	}},
	{"MW/TheRegionsOwnKeyDoesNotGiveTheWindowsRights", unreachable(func(t *trial) (*node, *node,
		transport.Key, transport.MR) {
		a, b := t.pair(shape{})
		m := b.memory(64, windowed)
		t.bound(b, b.qp, b.window(), m, 0, 64, remote)
		return a, b, m.Key(), m
	})},
	{"MW/RebindMakesTheOldKeyDead", unreachable(func(t *trial) (*node, *node, transport.Key, transport.MR) {
		a, b := t.pair(shape{})
		m, w, dst := b.memory(64, windowed), b.window(), a.memory(16, all)
		old := t.bound(b, b.qp, w, m, 0, 16, remote)
		key := t.bound(b, b.qp, w, m, 0, 16, remote) // the same arguments make another binding
		if key == old {
			t.failf("the key is the same")
		}
		t.must(a.qp.PostSend(through(key, read(1, dst, m))))
		t.one(a, 1, transport.OpRead, a, b)
		return a, b, old, m
	})},
	{"MW/KeyBeforeTheFirstBindIsRefused", unreachable(func(t *trial) (*node, *node, transport.Key,
		transport.MR) {
		a, b := t.pair(shape{})
		w := b.window()
		if w.Key() != 0 {
			t.failf("a window that was never bound has the key %#x", w.Key())
		}
		return a, b, w.Key(), b.memory(64, windowed)
	})},
	{"MW/InvalidateMakesTheKeyDead", unreachable(func(t *trial) (*node, *node, transport.Key, transport.MR) {
		a, b := t.pair(shape{})
		m, w := b.memory(64, windowed), b.window()
		key := t.bound(b, b.qp, w, m, 0, 16, remote)
		t.must(b.qp.PostSend(invalidate(2, key)))
		t.one(b, 2, transport.OpInvalidate, b)
		if w.Key() != 0 {
			t.failf("a window that is not bound has the key %#x", w.Key())
		}
		t.is(b.qp.PostSend(invalidate(3, key)), "a second time", transport.ErrInvalid)
		return a, b, key, m
	})},
	{"MW/SendInvalidateMakesTheKeyDeadBeforeItsCompletion", func(t *trial) {
		for _, size := range []int{0, 1, 64, 300_000} {
			for _, right := range []transport.Access{transport.RemoteRead, transport.RemoteWrite,
				transport.RemoteAtomic} {
				a, b := t.pair(shape{})
				src, dst, m, w := a.memory(size, all), b.memory(size, all), b.memory(64, windowed), b.window()
				fill(src.Bytes(), 1, 1)
				key := t.bound(b, b.qp, w, m, 0, 16, remote)
				t.must(b.qp.PostRecv(recv(1, dst)))
				wr := sendInvalidate(2, src, key)
				wr.Local[0].Length = size
				t.must(a.qp.PostSend(wr))
				t.one(a, 2, transport.OpSendInvalidate, a, b)
				if wc := t.one(b, 1, transport.OpRecv, a, b); wc.Key != key || wc.Bytes != size || wc.HasImm {
					t.failf("completion %+v, want %d bytes and the key %#x", wc, size, key)
				}
				t.must(check(dst.Bytes()[:size], 1, 1))
				if w.Key() != 0 {
					t.failf("a window that is not bound has the key %#x", w.Key())
				}
				t.must(m.Deregister()) // nothing is bound to it any more
				m = b.memory(64, windowed)
				t.refused(a, b, attempts(a, key, 0)[right])
				t.must(zero(m.Bytes()))
				t.closeAll()
			}
		}
	}},
	{"MW/SendInvalidateIsInOrderWithOtherMessages", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst, m, w := a.memory(16, all), b.memory(16, all), b.memory(16, windowed), b.window()
		for round := range uint64(20) {
			fill(src.Bytes(), 1, round)
			key := t.bound(b, b.qp, w, m, 0, 16, transport.RemoteWrite)
			for i := range uint64(3) {
				t.must(b.qp.PostRecv(recv(i, dst)))
			}
			t.must(a.qp.PostSend(without(through(key, write(9, src, m)), transport.FlagSignaled)))
			t.must(a.qp.PostSend(send(10, src)))
			t.must(a.qp.PostSend(with(sendInvalidate(11, src, key), transport.FlagInline)))
			t.must(a.qp.PostSend(send(12, src)))
			for i, want := range []transport.Key{0, key, 0} {
				if wc := t.one(b, uint64(i), transport.OpRecv, a, b); wc.Key != want || wc.Bytes != 16 {
					t.failf("completion %d is %+v, want the key %#x", i, wc, want)
				}
			}
			t.take(a, 3, a, b)
			t.must(check(m.Bytes(), 1, round))
		}
		t.none(a, b)
		t.well(a, b)
	}},
	{"MW/SendInvalidateOfAnyOtherKeyEndsTheQueuePair", func(t *trial) {
		for _, wrong := range []func(b *node, other transport.QP, w transport.MW,
			m transport.MR) transport.Key{
			func(*node, transport.QP, transport.MW, transport.MR) transport.Key { return 0 },
			func(*node, transport.QP, transport.MW, transport.MR) transport.Key { return 0x123456789 },
			func(_ *node, _ transport.QP, _ transport.MW, m transport.MR) transport.Key { return m.Key() },
			func(b *node, _ transport.QP, w transport.MW, m transport.MR) transport.Key {
				return t.bound(b, b.qp, w, m, 0, 8, remote) ^ 1<<63
			},
			// bound to another queue pair
			func(b *node, other transport.QP, w transport.MW, m transport.MR) transport.Key {
				return t.bound(b, other, w, m, 0, 8, remote)
			},
		} {
			nodes := t.ranks(3, shape{})
			a, b, c := nodes[0], nodes[1], nodes[2]
			a.qp, b.qp = t.connect(a, b)
			t.connect(c, b)
			other, _ := b.to(c.rank)[0], c
			m, src := b.memory(64, windowed), a.memory(8, all)
			key := wrong(b, other, b.window(), m)
			t.must(b.qp.PostRecv(recv(1, b.memory(8, all))))
			t.must(a.qp.PostSend(sendInvalidate(2, src, key)))
			t.flushed(t.take(b, 1, a, b, c), 1, 1)
			t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b, c)
			t.is(b.qp.Err(), "the owner's error", transport.ErrAccess)
			t.is(a.qp.Err(), "the sender's error", transport.ErrAccess)
			if s := other.State(); s != transport.StateReady {
				t.failf("the other queue pair is %v", s)
			}
			t.closeAll()
		}
	}},
	{"MW/ServesTheQueuePairThatBoundItAlone", func(t *trial) {
		for _, right := range []transport.Access{transport.RemoteRead, transport.RemoteWrite,
			transport.RemoteAtomic} {
			nodes := t.ranks(3, shape{})
			a, b, c := nodes[0], nodes[1], nodes[2]
			a.qp, b.qp = t.connect(a, b)
			c.qp, _ = t.connect(c, b)
			m, dst := b.memory(64, windowed), a.memory(16, all)
			key := t.bound(b, b.qp, b.window(), m, 0, 16, remote)
			t.must(c.qp.PostSend(attempts(c, key, 0)[right]))
			t.until("the other queue pair in error",
				func() bool { return c.qp.State() == transport.StateError }, nodes...)
			t.is(c.qp.Err(), "the other's error", transport.ErrAccess)
			t.must(zero(m.Bytes()))
			t.must(a.qp.PostSend(through(key, read(1, dst, m)))) // and still works
			t.one(a, 1, transport.OpRead, nodes...)
			t.closeAll()
		}
	}},
	{"MW/RebindThroughAnotherQueuePairMovesIt", func(t *trial) {
		nodes := t.ranks(3, shape{})
		a, b, c := nodes[0], nodes[1], nodes[2]
		a.qp, b.qp = t.connect(a, b)
		c.qp, _ = t.connect(c, b)
		m, dst, w := b.memory(64, windowed), c.memory(16, all), b.window()
		old := t.bound(b, b.qp, w, m, 0, 16, remote)
		key := t.bound(b, b.to(c.rank)[0], w, m, 0, 16, remote)
		t.must(c.qp.PostSend(through(key, read(1, dst, m))))
		t.one(c, 1, transport.OpRead, nodes...)
		t.refused(a, b, attempts(a, old, 0)[transport.RemoteRead])
		// the end of the previous queue pair changes nothing
		t.must(c.qp.PostSend(through(key, read(2, dst, m))))
		t.one(c, 2, transport.OpRead, nodes...)
	}},
	{"MW/N9_WrongRequestIsRefusedAtTheCallAndLeavesNoTrace", func(t *trial) {
		a, b := t.pair(shape{})
		w, m := a.window(), a.memory(64, windowed)
		key := t.bound(a, a.qp, w, m, 0, 16, remote)
		for what, wr := range wrongBinds(t, a, b) {
			t.is(a.qp.PostSend(wr), what, transport.ErrInvalid, transport.ErrAccess)
		}
		t.none(a, b)
		wr := bind(1, w, m, 0, 8, remote)
		wr.Bind.Length = 65
		t.is(a.qp.PostSend(wr), "a rebind that cannot be", transport.ErrInvalid, transport.ErrAccess)
		if w.Key() != key {
			t.failf("a refused Bind has changed the key")
		}
		dst := b.memory(16, all)
		t.must(b.qp.PostSend(through(key, read(1, dst, m)))) // nor has it ended the binding
		t.one(b, 1, transport.OpRead, a, b)
		t.well(a, b)
	}},
	{"MW/N9_BindForWhichTheQueueHasNoRoomLeavesNoTrace", func(t *trial) {
		a, b := t.pair(shape{sendWR: 2})
		w, m, dst := a.window(), a.memory(64, windowed), a.memory(16, all)
		key := t.bound(a, a.qp, w, m, 0, 16, remote)
		far := b.memory(16, all)
		for i := range uint64(2) {
			t.must(a.qp.PostSend(read(i, dst, far)))
		}
		t.is(a.qp.PostSend(bind(9, w, m, 0, 16, remote)), "one too many", transport.ErrQueueFull)
		if w.Key() != key {
			t.failf("a Bind that was not posted has changed the key")
		}
		t.take(a, 2, a, b)
		t.none(a, b)
	}},
	{"MW/InvalidateOfAnotherQueuePairsWindowIsRefusedAtTheCall", func(t *trial) {
		nodes := t.ranks(3, shape{})
		a, b, c := nodes[0], nodes[1], nodes[2]
		_, b.qp = t.connect(a, b)
		t.connect(c, b)
		key := t.bound(b, b.to(c.rank)[0], b.window(), b.memory(64, windowed), 0, 16, remote)
		t.is(b.qp.PostSend(invalidate(1, key)), "Invalidate", transport.ErrInvalid)
		t.none(nodes...)
	}},
	{"MW/BindsAndInvalidatesAreInOrderWithOtherWork", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst, m, w := b.memory(16, all), a.memory(16, all), b.memory(64, windowed), b.window()
		fill(src.Bytes(), 1, 1)
		t.must(a.qp.PostRecv(recv(1, dst)))
		t.must(a.qp.PostRecv(recv(2, dst)))
		t.must(b.qp.PostSend(with(send(3, src), transport.FlagMore)))
		t.must(b.qp.PostSend(with(bind(4, w, m, 0, 16, remote), transport.FlagMore)))
		first := w.Key()
		// the key of a Bind that may not be carried out yet
		t.must(b.qp.PostSend(with(invalidate(5, first), transport.FlagMore)))
		t.must(b.qp.PostSend(with(bind(6, w, m, 0, 16, remote), transport.FlagMore)))
		t.must(b.qp.PostSend(send(7, src)))
		for i, op := range []transport.Opcode{transport.OpSend, transport.OpBind, transport.OpInvalidate,
			transport.OpBind, transport.OpSend} {
			t.one(b, uint64(3+i), op, a, b)
		}
		t.one(a, 1, transport.OpRecv, a, b)
		t.one(a, 2, transport.OpRecv, a, b)
		t.must(a.qp.PostSend(through(w.Key(), read(8, dst, m))))
		t.one(a, 8, transport.OpRead, a, b)
		t.refused(a, b, attempts(a, first, 0)[transport.RemoteWrite])
	}},
	{"MW/FenceHoldsAnInvalidateBack", func(t *trial) {
		a, b := t.pair(shape{})
		const size = 60_000
		dst, m, far, w := a.memory(size, all), b.memory(size, all), a.memory(8, windowed), a.window()
		t.bound(a, a.qp, w, far, 0, 8, remote)
		t.must(a.qp.PostSend(read(1, dst, m)))
		t.must(a.qp.PostSend(with(invalidate(2, w.Key()), transport.FlagFence)))
		t.until("the Invalidate", func() bool { return len(a.wcs) > 0 || w.Key() == 0 }, a, b)
		t.one(a, 1, transport.OpRead, a, b)
		t.one(a, 2, transport.OpInvalidate, a, b)
	}},
	{"MW/DeregisterIsRefusedWhileOneIsBound", func(t *trial) {
		a, b := t.pair(shape{})
		m, w, dst := b.memory(64, windowed|transport.RemoteRead), b.window(), a.memory(16, all)
		fill(m.Bytes(), 2, 2)
		key := t.bound(b, b.qp, w, m, 0, 16, remote)
		for _, end := range []func() error{m.Deregister, m.Detach} {
			t.is(end(), "deregistration with a window bound", transport.ErrInvalid)
		}
		for i, k := range []transport.Key{key, m.Key()} { // both are as before
			t.must(a.qp.PostSend(through(k, read(uint64(i), dst, m))))
			t.one(a, uint64(i), transport.OpRead, a, b)
			t.must(equal(dst.Bytes(), m.Bytes()[:16]))
		}
		t.must(b.qp.PostSend(invalidate(3, key)))
		t.one(b, 3, transport.OpInvalidate, a, b)
		t.must(m.Deregister())
		t.well(a, b)
	}},
	{"MW/BindOfARegionThatIsGoneFails", func(t *trial) {
		a, b := t.pair(shape{})
		w := b.window()
		m, err := b.pd.Register(make([]byte, 64), windowed)
		t.must(err)
		t.must(b.qp.PostSend(with(bind(1, w, m, 0, 16, remote), transport.FlagMore)))
		if err := m.Deregister(); err != nil { // the Bind is carried out already
			t.one(b, 1, transport.OpBind, b)
			return
		}
		t.must(b.qp.PostSend(with(bind(2, w, b.memory(64, windowed), 0, 16, remote), transport.FlagMore)))
		b.qp.Flush()
		wcs := t.take(b, 2, a, b)
		if wcs[0].ID != 1 || wcs[0].Status != transport.StatusLocalProt || wcs[0].Err == nil {
			t.failf("completion %+v, want a local protection error", wcs[0])
		}
		t.flushed(wcs[1:], 2, 1)
		t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b)
	}},
	{"MW/DeallocateMakesTheKeyDead", unreachable(func(t *trial) (*node, *node, transport.Key, transport.MR) {
		a, b := t.pair(shape{})
		m, w := b.memory(64, windowed), b.window()
		key := t.bound(b, b.qp, w, m, 0, 16, remote)
		t.must(w.Deallocate())
		t.is(w.Deallocate(), "Deallocate a second time", transport.ErrInvalid)
		if w.Key() != 0 {
			t.failf("a window that is gone has the key %#x", w.Key())
		}
		t.bound(b, b.qp, b.window(), m, 0, 16, remote) // it may reuse the other's entry, not its key
		return a, b, key, m
	})},
	{"MW/BindOfAWindowThatIsGoneFails", func(t *trial) {
		a, b := t.pair(shape{})
		w, m := b.window(), b.memory(64, windowed)
		t.must(b.qp.PostSend(with(bind(1, w, m, 0, 16, remote), transport.FlagMore)))
		t.must(w.Deallocate())
		b.qp.Flush()
		wc := t.take(b, 1, a, b)[0]
		if wc.ID != 1 || wc.Status != transport.StatusLocalProt && wc.Status != transport.StatusSuccess {
			t.failf("completion %+v, want a local protection error, or a success from before it was gone", wc)
		}
		t.must(m.Deregister())
	}},
	{"MW/EndOfTheQueuePairEndsTheBinding", func(t *trial) {
		for _, end := range []func(a, b *node){
			func(_, b *node) { b.qp.Abort(nil) },
			func(a, _ *node) { a.qp.Abort(nil) },
			func(_, b *node) { b.qp.Release() },
			func(a, b *node) { a.qp.Close(); b.qp.Close() },
		} {
			a, b := t.pair(shape{})
			m, w := b.memory(64, windowed), b.window()
			t.bound(b, b.qp, w, m, 0, 16, remote)
			end(a, b)
			t.until("the end", func() bool {
				s := b.qp.State()
				return s == transport.StateError || s == transport.StateClosed
			}, a, b)
			if w.Key() != 0 {
				t.failf("the window of a queue pair that has ended has the key %#x", w.Key())
			}
			t.must(m.Deregister())
			t.must(w.Deallocate())
			t.closeAll()
		}
	}},
	{"MW/DomainIsNotClosedWhileItHasOne", func(t *trial) {
		d := t.newDevices(1)[0]
		pd, err := d.AllocPD()
		t.must(err)
		w, err := pd.AllocMW()
		t.must(err)
		t.is(pd.Close(), "closing a domain with a window", transport.ErrInvalid)
		t.must(w.Deallocate())
		t.must(pd.Close())
		if _, err := pd.AllocMW(); err == nil {
			t.failf("a window of a closed domain was made")
		}
	}},
	{"MW/KeysNeverComeBack", func(t *trial) {
		a, b := t.pair(shape{})
		m, w := b.memory(64, windowed), b.window()
		seen := map[transport.Key]bool{0: true}
		for range 600 { // more than 8 bits of a generation
			key := t.bound(b, b.qp, w, m, 0, 16, remote)
			if seen[key] {
				t.failf("the key %#x was given twice, or is none", key)
			}
			seen[key] = true
		}
		t.none(a, b)
	}},
}
