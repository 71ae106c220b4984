package verbstest

import (
	"errors"
	"time"

	"github.com/weft-mpi/weft/transport"
)

var cqChecks = []Check{
	{"CQ/PollGivesTheOldestFirstAndKeepsTheRest", func(t *trial) {
		a, b := t.pair(shape{})
		const n = 20
		src, dst := a.memory(8, all), b.memory(8, all)
		for i := range n {
			t.must(b.qp.PostRecv(recv(uint64(i), dst)))
			t.must(a.qp.PostSend(send(uint64(i), src)))
		}
		t.until("the Sends", func() bool { a.poll(); b.recvCQ.Poll(nil); return len(a.wcs) == n }, a)
		var got []transport.WC
		var wc [3]transport.WC
		t.until("the Recvs", func() bool {
			k := b.recvCQ.Poll(wc[:])
			got = append(got, wc[:k]...)
			return len(got) == n
		}, a)
		a.wcs = nil
		for i, wc := range got {
			if wc.ID != uint64(i) || wc.Op != transport.OpRecv || wc.Status != transport.StatusSuccess {
				t.failf("completion %d is %+v", i, wc)
			}
		}
		t.none(a, b)
	}},
	{"CQ/N4_SendAndReceiveQueueMayHaveTheirOwn", func(t *trial) {
		a, b := t.pair(shape{separate: true})
		src, dst := a.memory(8, all), b.memory(8, all)
		t.must(b.qp.PostRecv(recv(1, dst)))
		t.must(a.qp.PostSend(send(2, src)))
		var wc [4]transport.WC
		sent, received := 0, 0
		t.until("both completions", func() bool {
			for _, n := range []*node{a, b} {
				for _, cq := range n.cqs() {
					for _, c := range wc[:cq.Poll(wc[:])] {
						switch {
						case n == a && cq == a.sendCQ && c.ID == 2:
							sent++
						case n == b && cq == b.recvCQ && c.ID == 1:
							received++
						default:
							t.failf("rank %d: %+v came from the wrong completion queue", n.rank, c)
						}
					}
				}
			}
			return sent == 1 && received == 1
		})
	}},
	{"CQ/N4_SeveralQueuePairsMayShareOne", func(t *trial) {
		nodes := t.ranks(4, shape{})
		hub := nodes[0]
		dst := hub.memory(8*3, all)
		for i, n := range nodes[1:] {
			n.qp, _ = t.connect(n, hub)
			src := n.memory(8, all)
			fill(src.Bytes(), uint64(i), 1)
			at := hub.to(n.rank)[0]
			t.must(at.PostRecv(&transport.RecvWR{ID: uint64(i), Local: []transport.SGE{part(dst, 8*i, 8)}}))
			t.must(n.qp.PostSend(send(0, src)))
		}
		for _, wc := range t.take(hub, 3, nodes...) {
			if wc.Status != transport.StatusSuccess || wc.QP != hub.to(uint32(wc.ID) + 1)[0].Num() {
				t.failf("completion %+v names the wrong queue pair", wc)
			}
			t.must(check(dst.Bytes()[8*wc.ID:8*wc.ID+8], wc.ID, 1))
		}
	}},
	{"CQ/OverrunIsAnErrorAndNeverASilentDrop", func(t *trial) {
		const depth, n = 4, 32
		a, b := t.pair(shape{cqDepth: depth})
		src, dst := a.memory(8, all), b.memory(8, all)
		for i := range n {
			t.must(b.qp.PostRecv(recv(uint64(i), dst)))
		}
		for i := range n {
			if err := a.qp.PostSend(without(send(uint64(i), src), transport.FlagSignaled)); err != nil {
				break // the other side may have given up already
			}
		}
		t.until("the queue pair to fail", func() bool {
			b.recvCQ.Poll(nil)
			return b.qp.State() == transport.StateError
		}, a)
		t.is(b.qp.Err(), "the queue pair's error", transport.ErrOverrun)
		t.settle(b)
		for i, wc := range b.wcs {
			if wc.ID != uint64(i) || i < depth && wc.Status != transport.StatusSuccess {
				t.failf("completion %d after the overrun is %+v", i, wc)
			}
		}
		if len(b.wcs) < depth {
			t.failf("%d completions are left of the %d before the overrun", len(b.wcs), depth)
		}
		t.until("the peer to hear of it", func() bool { return a.qp.State() == transport.StateError }, a, b)
	}},
	{"CQ/CloseIsRefusedWhileUsed", func(t *trial) {
		a, _ := t.pair(shape{})
		if err := a.sendCQ.Close(); err == nil {
			t.failf("a completion queue with a queue pair was closed")
		}
	}},
	{"CQ/WakeEndsTheNextWait", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		n.sendCQ.Wake()
		t.must(n.waits(func() {}))
	}},
	{"CQ/WakeEndsTheWaitUnderWay", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		for range 20 {
			t.must(n.waits(n.sendCQ.Wake))
		}
	}},
	{"CQ/WaitEndsByItself", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		t.must(n.sendCQ.Wait(0))
		t.must(n.sendCQ.Wait(time.Millisecond))
	}},
	{"CQ/ClosingTheDeviceEndsAWait", func(t *trial) {
		for range 50 {
			n := t.open(t.newDevices(1)[0], shape{})
			n.sendCQ.Arm()
			begun, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				close(begun)
				for range 3 { // the device may be closed before or during a Wait
					_ = n.sendCQ.Wait(-1)
				}
			}()
			<-begun
			t.must(n.dev.Close())
			select {
			case <-ended:
			case <-time.After(t.timeout):
				t.failf("a Wait did not end when its device was closed")
			}
			if err := n.sendCQ.Wait(-1); !errors.Is(err, transport.ErrDeviceGone) {
				t.failf("a Wait of a device that is closed ended with %v", err)
			}
		}
	}},
	{"CQ/WaitEndsWhenAMessageComes", func(t *trial) {
		a, b := t.pair(shape{})
		src, dst := a.memory(8, all), b.memory(8, all)
		stop, done := make(chan struct{}), make(chan struct{})
		t.must(b.qp.PostRecv(recv(1, dst)))
		var posted error
		go func() { // rank 0, the sender, runs on this goroutine
			defer close(done)
			posted = a.qp.PostSend(send(2, src))
			for stopped := false; !stopped; {
				a.poll()
				select {
				case <-stop:
					stopped = true
				case <-time.After(time.Millisecond):
				}
			}
		}()
		err := t.within(b.dev, func() error {
			for len(b.wcs) == 0 {
				if err := b.recvCQ.Wait(-1); err != nil {
					return err
				}
				b.poll()
			}
			return nil
		})
		close(stop)
		<-done
		t.must(posted)
		t.must(err)
		if len(b.wcs) != 1 || b.wcs[0].ID != 1 {
			t.failf("completions %+v", b.wcs)
		}
	}},
	{"CQ/WakeAndEventsAsTheDeviceIsClosedAndAfter", func(t *trial) {
		for range 20 {
			a, _ := t.pair(shape{})
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for {
					a.sendCQ.Wake()
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			err := a.dev.Close()
			a.sendCQ.Wake()
			close(stop)
			<-ended
			t.must(err)
			if err := a.qp.PostRecv(&transport.RecvWR{ID: 1, Notify: true}); err != nil {
				t.is(err, "a Recv after the device is closed", transport.ErrState)
			} else {
				t.flushed(t.take(a, 1, a), 1, 1)
			}
			t.closeAll()
		}
	}},
	{"CQ/PlacedNamesEachQueuePairOnce", func(t *trial) {
		a, b := t.pair(shape{})
		src, m := a.memory(64, all), b.memory(64, all)
		for round := range uint64(10) {
			b.placed = nil
			fill(src.Bytes(), 1, round)
			t.must(a.qp.PostSend(write(round, src, m)))
			t.one(a, round, transport.OpWrite, a, b)
			t.until("the Write's bytes and its report", func() bool {
				return check(m.Bytes(), 1, round) == nil && len(b.placed) > 0
			}, a, b)
			for _, num := range b.placed {
				if num != b.qp.Num() {
					t.failf("Placed names queue pair %d, want %d", num, b.qp.Num())
				}
			}
		}
		t.none(b)
		b.placed = nil
		t.settle(a, b)
		if len(b.placed) > 0 {
			t.failf("Placed names %v, and nothing was placed", b.placed)
		}
	}},
}

// waits checks that Wait(-1) returns while act runs concurrently.
func (n *node) waits(act func()) error {
	return n.t.within(n.dev, func() error {
		ended := make(chan error, 1)
		go func() { ended <- n.sendCQ.Wait(-1) }()
		act()
		return <-ended
	})
}

// within runs f, which may block. If f does not return, it closes the device, which must unblock f.
func (t *trial) within(d transport.Device, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	limit := time.NewTimer(t.timeout)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		_ = d.Close()
		<-done
		return errors.New("blocked, until its device was closed")
	}
}
