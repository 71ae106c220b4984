package verbstest

import (
	"bytes"
	"math"

	"github.com/weft-mpi/weft/transport"
)

// refused posts a request that the peer must refuse, and checks that both queue pairs end. PostSend may
// refuse it, too, where it can see that the request is wrong.
func (t *trial) refused(a, b *node, wr *transport.SendWR) {
	t.must(b.qp.PostRecv(&transport.RecvWR{ID: 77}))
	if err := a.qp.PostSend(wr); err != nil {
		t.is(err, "request refused at the call", transport.ErrInvalid, transport.ErrAccess)
		return
	}
	t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b)
	t.is(a.qp.Err(), "the poster's error", transport.ErrAccess)
	t.is(b.qp.Err(), "the owner's error", transport.ErrAccess, transport.ErrProtocol)
	for _, wc := range a.wcs {
		if wc.ID != wr.ID {
			t.failf("completion %+v of no request", wc)
		}
		if asks(wr.Op) && wc.Status != transport.StatusRemoteAccess {
			t.failf("R6: the request completed with %v", wc.Status)
		}
		if wc.Status != transport.StatusRemoteAccess && wc.Status != transport.StatusSuccess {
			t.failf("the request completed with %v", wc.Status) // a Write may have completed when it was sent
		}
		if wc.Status != transport.StatusSuccess && wc.Err == nil {
			t.failf("completion %+v does not say what was wrong", wc)
		}
	}
	if len(a.wcs) != 1 {
		t.failf("%d completions for one request: %+v", len(a.wcs), a.wcs)
	}
}

func bothIn(a, b *node, s transport.State) func() bool {
	return func() bool { return a.qp.State() == s && b.qp.State() == s }
}

// remoteBounds tries segments that lie outside a region of 256 bytes.
func remoteBounds(op transport.Opcode) func(*trial) {
	return func(t *trial) {
		for _, s := range []struct {
			off uint64
			n   int
		}{{256, 1}, {255, 2}, {0, 257}, {300, 8}, {math.MaxUint64, 8}, {math.MaxUint64 - 7, 8},
			{math.MaxInt64, 8}} {
			a, b := t.pair(shape{})
			local := a.memory(s.n, all)
			guard := make([]byte, 1024) // the region lies inside it
			m, err := b.pd.Register(guard[256:512], all)
			t.must(err)
			fill(local.Bytes(), 1, 1)
			wr := write(5, local, m)
			wr.Op = op
			wr.Remote[0].Offset = s.off
			t.refused(a, b, wr)
			t.must(zero(guard))
			if op == transport.OpRead {
				t.must(check(local.Bytes(), 1, 1))
			}
			t.must(m.Deregister())
			t.closeAll()
		}
	}
}

// remoteRights tries a region that lacks the right.
func remoteRights(op transport.Opcode, given transport.Access) func(*trial) {
	return func(t *trial) {
		a, b := t.pair(shape{})
		local, m := a.memory(64, all), b.memory(64, given)
		if op != transport.OpRead {
			fill(local.Bytes(), 1, 1)
		} else {
			fill(m.Bytes(), 2, 1)
		}
		wr := write(5, local, m)
		wr.Op = op
		t.refused(a, b, wr)
		if op == transport.OpRead {
			t.must(zero(local.Bytes()))
		} else {
			t.must(zero(m.Bytes()))
		}
	}
}

var memoryChecks = []Check{
	{"MR/R6_WriteOutOfBoundsIsRefused", remoteBounds(transport.OpWrite)},
	{"MR/R6_WriteImmOutOfBoundsIsRefused", remoteBounds(transport.OpWriteImm)},
	{"MR/R6_ReadOutOfBoundsIsRefused", remoteBounds(transport.OpRead)},
	{"MR/R6_WriteWithoutTheRightIsRefused", remoteRights(transport.OpWrite,
		transport.LocalWrite|transport.RemoteRead)},
	{"MR/R6_WriteImmWithoutTheRightIsRefused", remoteRights(transport.OpWriteImm, transport.LocalWrite)},
	{"MR/R6_ReadWithoutTheRightIsRefused", remoteRights(transport.OpRead, transport.RemoteWrite)},
	{"MR/R6_SecondSegmentOfAReadIsCheckedToo", func(t *trial) {
		a, b := t.pair(shape{})
		local, good, bad := a.memory(64, all), b.memory(32, all), b.memory(32, transport.RemoteWrite)
		wr := read(5, local, good)
		wr.Remote = []transport.Segment{segment(good, 0, 32), segment(bad, 0, 32)}
		fill(bad.Bytes(), 3, 3)
		t.refused(a, b, wr)
		t.must(zero(local.Bytes()[32:]))
	}},
	{"MR/KeyOfADeregisteredRegionIsRefused", func(t *trial) {
		for _, op := range []transport.Opcode{transport.OpWrite, transport.OpRead} {
			a, b := t.pair(shape{})
			local, buf := a.memory(64, all), make([]byte, 64)
			m, err := b.pd.Register(buf, all)
			t.must(err)
			wr := write(5, local, m)
			wr.Op = op
			fill(local.Bytes(), 1, 1)
			t.must(m.Deregister())
			t.refused(a, b, wr)
			t.must(zero(buf))
			t.closeAll()
		}
	}},
	{"MR/StaleKeyIsRefusedAfterTheMemoryIsRegisteredAgain", func(t *trial) {
		a, b := t.pair(shape{})
		local, buf := a.memory(64, all), make([]byte, 64)
		m, err := b.pd.Register(buf, all)
		t.must(err)
		wr := write(5, local, m)
		fill(local.Bytes(), 1, 1)
		t.must(m.Deregister())
		m, err = b.pd.Register(buf, all)
		t.must(err)
		t.refused(a, b, wr)
		t.must(zero(buf))
		t.must(m.Deregister())
	}},
	{"MR/GuessedKeyIsRefused", func(t *trial) {
		for _, guess := range []func(transport.Key) transport.Key{
			func(transport.Key) transport.Key { return 0 },
			func(k transport.Key) transport.Key { return k ^ 1 },
			func(k transport.Key) transport.Key { return k ^ 1<<63 },
		} {
			a, b := t.pair(shape{})
			local, m := a.memory(64, all), b.memory(64, all)
			fill(local.Bytes(), 1, 1)
			wr := write(5, local, m)
			wr.Remote[0].Key = guess(m.Key())
			t.refused(a, b, wr)
			t.must(zero(m.Bytes()))
			t.closeAll()
		}
	}},
	{"PD/KeyOfAnotherDomainIsRefused", func(t *trial) {
		for _, op := range []transport.Opcode{transport.OpWrite, transport.OpRead} {
			a, b := t.pair(shape{})
			other, err := b.dev.AllocPD()
			t.must(err)
			m, err := other.Alloc(64, all)
			t.must(err)
			local := a.memory(64, all)
			fill(local.Bytes(), 1, 1)
			wr := write(5, local, m)
			wr.Op = op
			t.refused(a, b, wr)
			t.must(zero(m.Bytes()))
			t.closeAll()
		}
	}},
	{"MR/RecvIntoADeregisteredRegionFails", func(t *trial) {
		a, b := t.pair(shape{})
		local, buf := a.memory(64, all), make([]byte, 64)
		m, err := b.pd.Register(buf, transport.LocalWrite)
		t.must(err)
		t.must(b.qp.PostRecv(recv(1, m)))
		t.must(m.Deregister())
		fill(local.Bytes(), 1, 1)
		t.must(a.qp.PostSend(send(2, local)))
		if wc := t.take(b, 1, a, b)[0]; wc.ID != 1 || wc.Status != transport.StatusLocalProt ||
			wc.Err == nil {
			t.failf("completion %+v, want a local protection error", wc)
		}
		t.until("both queue pairs in error", bothIn(a, b, transport.StateError), a, b)
		t.must(zero(buf))
	}},
	{"MR/DetachEndsTheKeyAndLeavesTheMemory", func(t *trial) {
		a, b := t.pair(shape{})
		local := a.memory(64, all)
		m, err := b.pd.Alloc(64, all)
		t.must(err)
		mem := m.Bytes()
		fill(mem, 1, 1)
		before := append([]byte(nil), mem...)
		fill(local.Bytes(), 1, 2)
		wr := write(5, local, m)
		t.must(m.Detach())
		t.refused(a, b, wr)
		t.must(b.dev.Close())
		mem[63]++ // it can be written, too
		mem[63]--
		if !bytes.Equal(mem, before) {
			t.failf("the memory changed")
		}
	}},
	{"MR/DeregisterUnderTrafficEndsEveryPlacement", func(t *trial) {
		for round := range 20 {
			a, b := t.pair(shape{})
			const n = 64 << 10
			buf := make([]byte, n)
			m, err := b.pd.Register(buf, all)
			t.must(err)
			for i := range 4 {
				src := a.memory(n, all)
				fill(src.Bytes(), 1, uint64(i))
				t.must(a.qp.PostSend(write(uint64(i), src, m)))
			}
			t.polls(round, a, b)
			t.must(m.Deregister())
			before := append([]byte(nil), buf...)
			t.until("every Write completed", func() bool { return len(a.wcs) == 4 }, a, b)
			t.settle(a, b)
			for i := range buf {
				if buf[i] != before[i] {
					t.failf("byte %d was placed after Deregister returned", i)
				}
			}
			t.closeAll()
		}
	}},
}
