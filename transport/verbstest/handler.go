package verbstest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// desk is a consumer with a completion handler: its lock, and the events delivered to it.
type desk struct {
	*sync.Mutex
	t      *trial
	id     transport.HandlerID
	queues []transport.CQ // of the events, in order
	err    error          // the error of an event
	inside atomic.Int32
	then   func(cq transport.CQ) error // called for each event
}

// config returns the handler's configuration.
func (d *desk) config() transport.HandlerConfig {
	return transport.HandlerConfig{Core: -1, Lock: d.Mutex, Complete: d.complete}
}

func (d *desk) complete(h transport.HandlerID, cq transport.CQ) {
	if d.inside.Add(1) > 1 {
		d.err = errors.Join(d.err, errors.New("Complete was called twice at a time"))
	}
	defer d.inside.Add(-1)
	if d.TryLock() {
		d.Unlock()
		d.err = errors.Join(d.err, errors.New("Complete was called without the lock"))
	}
	if h != d.id {
		d.err = errors.Join(d.err, fmt.Errorf("Complete was called for handler %d, not %d", h, d.id))
	}
	d.queues = append(d.queues, cq)
	if d.then != nil {
		d.err = errors.Join(d.err, d.then(cq))
	}
}

// desk registers a handler. change may replace the desk's configuration.
func (t *trial) desk(dev transport.Device, change func(*transport.HandlerConfig)) *desk {
	d := &desk{t: t, Mutex: new(sync.Mutex)}
	c := d.config()
	if change != nil {
		change(&c)
		d.Mutex = c.Lock.(*sync.Mutex)
	}
	d.Lock()
	defer d.Unlock() // so that the first event finds the id
	var err error
	d.id, err = dev.SetCompletionHandler(c)
	t.must(err)
	return d
}

// with runs f under the handler's lock.
func (d *desk) with(f func()) {
	d.Lock()
	defer d.Unlock()
	f()
}

// take assigns the queues of a node to the handler.
func (d *desk) take(n *node) {
	d.with(func() { // from the first one on, it drives the queue pairs of both
		for _, cq := range n.cqs() {
			d.t.must(n.dev.ModifyCQ(cq, d.id))
		}
	})
}

// told returns the number of events so far.
func (d *desk) told() (n int) {
	d.with(func() { n = len(d.queues); d.t.must(d.err) })
	return n
}

// arm asks for an event.
func (d *desk) arm(cq transport.CQ, n transport.Notify) {
	d.with(func() { d.t.must(cq.RequestNotify(n)) })
}

// drive polls the nodes without handlers until cond. A handler needs no help.
func (t *trial) drive(what string, cond func() bool, nodes ...*node) {
	end := time.Now().Add(t.timeout)
	for idle := 0; !cond(); idle++ {
		for _, n := range nodes {
			if n.poll() > 0 {
				idle = 0
			}
		}
		if idle < 64 {
			runtime.Gosched()
			continue
		}
		time.Sleep(50 * time.Microsecond)
		if time.Now().After(end) {
			t.failf("waited in vain for: %s%s", what, describe(nodes))
		}
	}
}

// attended returns a pair whose second side has a handler.
func (t *trial) attended(s shape) (a, b *node, d *desk) {
	a, b = t.pair(s)
	d = t.desk(b.dev, nil)
	d.take(b)
	return a, b, d
}

// deliver sends a message and returns when b's handler has moved it to b's queue.
func (d *desk) deliver(a, b *node, wr *transport.SendWR, into *transport.RecvWR) {
	have := len(b.wcs)
	d.with(func() { d.t.must(b.qp.PostRecv(into)) })
	d.t.must(a.qp.PostSend(wr))
	d.t.drive("the message", func() bool {
		d.with(func() { b.poll() })
		return len(b.wcs) > have
	}, a)
}

// quiet checks that no further event comes.
func (d *desk) quiet(want int, what string, a *node) {
	d.t.settle(a)
	if n := d.told(); n != want {
		d.t.failf("%s: %d events, want %d", what, n, want)
	}
}

// board is one device with several consumers, each with its own domain, queues and queue pair, to the rank of
// its index plus one.
type board struct {
	nodes []*node
}

func (x *board) node(rank uint32) *node { return x.nodes[rank-1] }

func (x *board) Prepare(rank uint32) (transport.QPConfig, []byte, error) {
	return x.node(rank).Prepare(rank)
}
func (x *board) Connected(rank uint32, qp transport.QP, private []byte) {
	x.node(rank).Connected(rank, qp, private)
}
func (x *board) Refused(string, error) {}

// board makes a device with n consumers, and a peer for each.
func (t *trial) board(n int) (consumers, peers []*node) {
	devices := t.newDevices(n + 1)
	x := &board{}
	for range n {
		x.nodes = append(x.nodes, t.open(devices[0], shape{}))
	}
	ep, err := devices[0].Listen(t.identity(0, n+1), x)
	t.must(err)
	for i, c := range x.nodes {
		p := t.open(devices[i+1], shape{})
		p.listen(t.identity(i+1, n+1))
		t.must(p.dialAs(0, ep.Addr()))
		t.eventually("Connected at the side that accepted", func() bool { return len(c.to(p.rank)) > 0 })
		p.qp, c.qp = p.to(0)[0], c.to(p.rank)[0]
		peers = append(peers, p)
	}
	return x.nodes, peers
}

// core returns a core that handlers can have. It skips the check on devices with fewer than two handlers.
func (t *trial) core(dev transport.Device) int {
	if dev.Query().Handlers < 2 {
		panic(failure{fmt.Errorf("the device supports one handler alone: %w", errors.ErrUnsupported)})
	}
	var last error
	for core := range 1024 {
		id, err := dev.SetCompletionHandler(transport.HandlerConfig{Core: core, Lock: new(sync.Mutex),
			Complete: func(transport.HandlerID, transport.CQ) {}})
		if err == nil {
			t.must(dev.CloseHandler(id))
			return core
		}
		last = err
	}
	t.failf("no core can have a handler: %v", last)
	return 0
}

// locks is a Locker that cannot be compared with another.
type locks []sync.Locker

func (locks) Lock()   {}
func (locks) Unlock() {}

// raise raises an event at the queue of a node whose queue pair has ended.
func raise(n *node) error { return n.qp.PostRecv(&transport.RecvWR{Notify: true}) }

// message returns an empty message.
func message(op transport.Opcode, flags transport.Flags) *transport.SendWR {
	return &transport.SendWR{ID: 5, Op: op, Flags: flags}
}

var handlerChecks = []Check{
	{"CQ/N1_TheDeviceTellsHowManyHandlers", func(t *trial) {
		dev := t.newDevices(1)[0]
		n := dev.Query().Handlers
		if n < 1 {
			t.failf("%d handlers", n)
		}
		seen := map[transport.HandlerID]bool{}
		var d *desk
		for range n {
			d = t.desk(dev, nil)
			if d.id == 0 || seen[d.id] {
				t.failf("handler id %d", d.id)
			}
			seen[d.id] = true
		}
		_, err := dev.SetCompletionHandler(d.config())
		t.is(err, "one handler too many", transport.ErrInvalid)
		t.must(dev.CloseHandler(d.id))
		if again := t.desk(dev, nil); seen[again.id] {
			t.failf("handler id %d has come back", again.id)
		}
	}},
	{"CQ/N2_WrongHandlersAreRefused", func(t *trial) {
		dev := t.newDevices(1)[0]
		for what, change := range map[string]func(*transport.HandlerConfig){
			"no Complete":   func(c *transport.HandlerConfig) { c.Complete = nil },
			"no Lock":       func(c *transport.HandlerConfig) { c.Lock = nil },
			"core -2":       func(c *transport.HandlerConfig) { c.Core = -2 },
			"core 100000":   func(c *transport.HandlerConfig) { c.Core = 100000 },
			"class 7":       func(c *transport.HandlerConfig) { c.Class = 7 },
			"negative spin": func(c *transport.HandlerConfig) { c.Spin = -1 },
			"Lock by value": func(c *transport.HandlerConfig) { c.Lock = locks{} },
		} {
			c := (&desk{Mutex: new(sync.Mutex)}).config()
			change(&c)
			_, err := dev.SetCompletionHandler(c)
			t.is(err, what, transport.ErrInvalid)
		}
		_, err := dev.CreateCQ(8, 1)
		t.is(err, "CreateCQ with a handler that is none", transport.ErrInvalid)
		t.is(dev.CloseHandler(0), "CloseHandler(0)", transport.ErrInvalid)
		t.is(dev.CloseHandler(7), "CloseHandler(7)", transport.ErrInvalid)
		t.must(dev.Close())
		_, err = dev.SetCompletionHandler((&desk{Mutex: new(sync.Mutex)}).config())
		t.is(err, "SetCompletionHandler of a closed device", transport.ErrDeviceGone)
	}},
	{"CQ/N3_AQueueIsMadeForAHandler", func(t *trial) {
		dev := t.newDevices(1)[0]
		d := t.desk(dev, nil)
		cq, err := dev.CreateCQ(8, d.id)
		t.must(err)
		t.is(cq.Wait(0), "Wait on a queue that a handler has", transport.ErrInvalid)
		t.is(dev.CloseHandler(d.id), "CloseHandler of one with a queue", transport.ErrInvalid)
		d.with(func() {
			t.is(cq.Close(), "Close of a queue that a handler has", transport.ErrInvalid)
			t.is(dev.ModifyCQ(cq, d.id+1), "ModifyCQ to nobody", transport.ErrInvalid)
			t.is(cq.RequestNotify(0), "a request for nothing", transport.ErrInvalid)
			t.is(cq.RequestNotify(1<<7), "a request for what does not exist", transport.ErrInvalid)
			t.must(dev.ModifyCQ(cq, 0))
		})
		t.must(cq.Wait(0))
		t.must(cq.Close())
		t.must(dev.CloseHandler(d.id))
		if d.told() > 0 {
			t.failf("%d events", len(d.queues))
		}
	}},
	{"CQ/N3_AQueueThatSomebodyWaitsOnIsNotGivenAway", func(t *trial) {
		n := t.open(t.newDevices(1)[0], shape{})
		d := t.desk(n.dev, nil)
		ended := make(chan error, 1)
		n.sendCQ.Arm()
		go func() { ended <- n.sendCQ.Wait(-1) }()
		t.eventually("ModifyCQ to be refused, for a goroutine waits", func() bool {
			err := n.dev.ModifyCQ(n.sendCQ, d.id)
			if err == nil { // it is not waiting yet
				d.with(func() { t.must(n.dev.ModifyCQ(n.sendCQ, 0)) })
			}
			return err != nil || len(ended) > 0
		})
		n.sendCQ.Wake()
		<-ended
	}},
	{"CQ/N3_MovedUnderTrafficNoEventIsLost", func(t *trial) {
		const messages = 400
		a, b, first := t.attended(shape{recvWR: messages})
		var dst transport.MR
		received := 0
		collect := func(cq transport.CQ) error { // the consumer's part: empty the queue, ask, look again
			var wc [4]transport.WC
			for asked := false; ; asked = true {
				for n := cq.Poll(wc[:]); n > 0; n = cq.Poll(wc[:]) {
					for _, c := range wc[:n] {
						if c.ID != uint64(received) || c.Status != transport.StatusSuccess {
							return fmt.Errorf("completion %+v where %d is due", c, received)
						}
						received++
					}
				}
				if asked {
					return nil
				}
				if err := cq.RequestNotify(transport.NotifyNext); err != nil {
					return err
				}
			}
		}
		second := first
		if b.dev.Query().Handlers > 1 {
			second = t.desk(b.dev, func(c *transport.HandlerConfig) { c.Lock = first.Mutex })
			second.then = collect
		}
		first.then = collect
		src := a.memory(8, all)
		dst = b.memory(8, all)
		first.with(func() {
			for i := range messages {
				t.must(b.qp.PostRecv(recv(uint64(i), dst)))
			}
			t.must(collect(b.recvCQ))
		})
		for i := range messages {
			wr := send(uint64(i), src)
			t.drive("room to send", func() bool {
				first.with(func() { b.recvCQ.Poll(nil) }) // drives b while no handler does
				err := a.qp.PostSend(wr)
				if !errors.Is(err, transport.ErrQueueFull) {
					t.must(err)
				}
				return err == nil
			}, a)
			if i%3 == 0 {
				to := [...]transport.HandlerID{first.id, 0, second.id, first.id, 0}[i/3%5]
				first.with(func() { t.must(b.dev.ModifyCQ(b.recvCQ, to)) })
			}
		}
		first.with(func() { t.must(b.dev.ModifyCQ(b.recvCQ, second.id)) })
		t.drive("every message", func() bool {
			done := false
			first.with(func() { done = received == messages || errors.Join(first.err, second.err) != nil })
			return done
		}, a)
		first.with(func() { t.must(errors.Join(first.err, second.err)) })
	}},
	{"CQ/N4_QueuesShareAHandler", func(t *trial) {
		a, b, d := t.attended(shape{separate: true})
		src, dst := b.memory(8, all), b.memory(8, all)
		far := a.memory(8, all)
		t.must(a.qp.PostRecv(recv(1, far)))
		d.arm(b.sendCQ, transport.NotifyNext)
		d.arm(b.recvCQ, transport.NotifyNext)
		d.with(func() { t.must(b.qp.PostRecv(recv(2, dst))); t.must(b.qp.PostSend(send(3, src))) })
		t.must(a.qp.PostSend(send(4, far)))
		t.drive("both events", func() bool { return d.told() >= 2 }, a)
		d.with(func() {
			b.poll()
			if len(d.queues) != 2 || d.queues[0] == d.queues[1] {
				t.failf("events of %v", d.queues)
			}
			if len(b.wcs) != 2 {
				t.failf("completions %+v", b.wcs)
			}
		})
	}},
	{"CQ/N4_N9_SendAndReceiveQueueHaveHandlersOfTheirOwn", func(t *trial) {
		a, b := t.pair(shape{separate: true})
		if b.dev.Query().Handlers < 2 {
			panic(failure{fmt.Errorf("the device supports one handler alone: %w", errors.ErrUnsupported)})
		}
		sends := t.desk(b.dev, nil)
		told := func(send, receive transport.HandlerID) { // N9
			if c := b.qp.Query(); c.SendHandler != send || c.RecvHandler != receive {
				t.failf("the queue pair names handlers %d and %d, not %d and %d", c.SendHandler,
					c.RecvHandler, send, receive)
			}
		}
		told(0, 0)
		t.must(b.dev.ModifyCQ(b.sendCQ, sends.id))
		sends.with(func() { told(sends.id, 0) })
		otherLock := t.desk(b.dev, nil)
		sends.with(func() {
			t.is(b.dev.ModifyCQ(b.recvCQ, otherLock.id), "the other queue to a handler with another lock",
				transport.ErrInvalid)
		})
		t.must(b.dev.CloseHandler(otherLock.id))
		receives := t.desk(b.dev, func(c *transport.HandlerConfig) { c.Lock = sends.Mutex })
		sends.with(func() { t.must(b.dev.ModifyCQ(b.recvCQ, receives.id)); told(sends.id, receives.id) })
		for range 20 {
			dst, far := b.memory(8, all), a.memory(8, all)
			before, sent := 0, 0
			sends.with(func() {
				before, sent = len(receives.queues), len(sends.queues)
				t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1, Local: []transport.SGE{sge(dst)},
					Notify: true}))
				t.must(b.qp.PostSend(with(send(2, dst), transport.FlagNotify)))
			})
			t.must(a.qp.PostRecv(recv(3, far)))
			t.must(a.qp.PostSend(send(4, far)))
			t.drive("both events", func() (ok bool) {
				sends.with(func() { ok = len(receives.queues) > before && len(sends.queues) > sent })
				return ok
			}, a)
		}
		sends.with(func() {
			t.must(errors.Join(sends.err, receives.err))
			for _, cq := range sends.queues {
				if cq != b.sendCQ {
					t.failf("an event of another queue")
				}
			}
			for _, cq := range receives.queues {
				if cq != b.recvCQ {
					t.failf("an event of another queue")
				}
			}
		})
	}},
	{"CQ/N5_NextRaisesOneEvent", func(t *trial) {
		a, b, d := t.attended(shape{})
		for round := range 3 {
			d.arm(b.recvCQ, transport.NotifyNext)
			d.deliver(a, b, message(transport.OpSend, 0), &transport.RecvWR{})
			t.drive("the event", func() bool { return d.told() > round }, a)
			for range 3 {
				d.deliver(a, b, message(transport.OpSend, transport.FlagSolicited), &transport.RecvWR{})
			}
			d.quiet(round+1, "more completions", a)
		}
	}},
	{"CQ/N5_CompletionsBeforeTheRequestRaiseNone", func(t *trial) {
		a, b, d := t.attended(shape{})
		far, word := b.memory(8, all), a.memory(8, all)
		d.with(func() {
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
			t.must(b.qp.PostRecv(&transport.RecvWR{ID: 2}))
		})
		t.must(a.qp.PostSend(without(message(transport.OpSend, 0), transport.FlagSignaled)))
		t.must(a.qp.PostSend(read(7, word, far)))
		// the Read is answered, so the message before it has been delivered
		t.drive("the Read", func() bool { return len(a.wcs) > 0 }, a)
		d.arm(b.recvCQ, transport.NotifyNext|transport.NotifySolicited)
		d.quiet(0, "a completion that was there before", a)
		d.with(func() { b.poll() })
		if len(b.wcs) != 1 || b.wcs[0].ID != 1 {
			t.failf("completions %+v", b.wcs)
		}
		t.must(a.qp.PostSend(message(transport.OpSend, 0)))
		t.drive("the event of the next", func() bool { return d.told() == 1 }, a)
	}},
	{"CQ/N5_SolicitedOnly", func(t *trial) {
		a, b, d := t.attended(shape{})
		want := 0
		for _, op := range []transport.Opcode{transport.OpSend, transport.OpWriteImm} {
			d.arm(b.recvCQ, transport.NotifySolicited)
			for range 3 {
				d.deliver(a, b, message(op, 0), &transport.RecvWR{})
			}
			d.quiet(want, "unmarked messages", a)
			d.deliver(a, b, message(op, transport.FlagSolicited), &transport.RecvWR{})
			want++
			t.drive("the event of a marked message", func() bool { return d.told() >= want }, a)
			d.deliver(a, b, message(op, transport.FlagSolicited), &transport.RecvWR{})
			d.quiet(want, "a marked message that nobody asked for", a)
		}
		d.arm(b.recvCQ, transport.NotifySolicited)
		d.with(func() { t.must(b.qp.PostRecv(&transport.RecvWR{ID: 9})) })
		a.qp.Abort(errors.New("the end"))
		t.drive("the event of an error", func() bool { return d.told() == want+1 }, a)
	}},
	{"CQ/N5_ARequestAsksByItself", func(t *trial) {
		a, b, d := t.attended(shape{})
		far := a.memory(8, all)
		d.deliver(a, b, message(transport.OpSend, 0), &transport.RecvWR{})
		d.quiet(0, "nobody has asked", a)
		d.deliver(a, b, message(transport.OpSend, 0), &transport.RecvWR{Notify: true})
		t.drive("the event of the receive", func() bool { return d.told() == 1 }, a)
		d.with(func() { t.must(b.qp.PostSend(with(write(1, b.memory(8, all), far), transport.FlagNotify))) })
		t.drive("the event of the Write", func() bool { return d.told() == 2 }, a)
		d.with(func() {
			t.must(b.qp.PostRecv(&transport.RecvWR{Notify: true}))
			b.qp.Abort(errors.New("the end"))
		})
		t.drive("the event of the flush", func() bool { return d.told() == 3 }, a)
	}},
	{"CQ/N5_PlacedBytesRaiseAnEvent", func(t *trial) {
		a, b, d := t.attended(shape{})
		src, dst := a.memory(64, all), b.memory(64, all)
		for round := range 5 {
			d.with(func() { b.poll(); b.placed = nil })
			d.arm(b.recvCQ, transport.NotifyPlaced|transport.NotifyNext)
			fill(src.Bytes(), 1, uint64(round))
			t.must(a.qp.PostSend(write(1, src, dst)))
			t.drive("the event", func() bool { return d.told() == round+1 }, a)
			t.drive("the bytes", func() (ok bool) {
				d.with(func() {
					b.poll()
					ok = len(b.placed) > 0 &&
						check(dst.Bytes(), 1, uint64(round)) == nil
				})
				return ok
			}, a)
			t.settle(a)
		}
	}},
	{"CQ/N5_ArmThenPollMissesNothing", func(t *trial) {
		const messages = 3000
		a, b, d := t.attended(shape{recvWR: 16})
		woken := make(chan struct{}, 1)
		d.then = func(transport.CQ) error {
			select {
			case woken <- struct{}{}:
			default:
			}
			return nil
		}
		var posted atomic.Int64 // receives
		posted.Store(16)
		failed := make(chan error, 1)
		stop := make(chan struct{})
		done := make(chan struct{})
		d.with(func() {
			for range 16 {
				t.must(b.qp.PostRecv(&transport.RecvWR{}))
			}
		})
		go func() { // the consumer sleeps whenever the queue is empty after its request
			defer close(done)
			failed <- func() error {
				var wc [3]transport.WC
				for got := 0; got < messages; {
					d.Lock()
					err := b.recvCQ.RequestNotify(transport.NotifyNext)
					n := b.recvCQ.Poll(wc[:])
					for range n {
						err = errors.Join(err, b.qp.PostRecv(&transport.RecvWR{}))
					}
					d.Unlock()
					posted.Add(int64(n))
					if got += n; err != nil {
						return err
					}
					if n > 0 {
						continue
					}
					select {
					case <-woken:
					case <-stop:
						return fmt.Errorf("%d messages of %d came", got, messages)
					}
				}
				return nil
			}()
		}()
		defer func() { close(stop); <-done }()
		sent := int64(0)
		t.drive("every message", func() bool {
			for sent < messages && sent < posted.Load() && a.qp.PostSend(message(transport.OpSend,
				0)) == nil {
				sent++
			}
			return len(failed) > 0
		}, a)
		t.must(<-failed)
	}},
	{"CQ/N5_WithoutAHandlerTheEventStays", func(t *trial) {
		a, b := t.pair(shape{})
		t.must(b.recvCQ.RequestNotify(transport.NotifyNext))
		t.must(b.qp.PostRecv(&transport.RecvWR{ID: 1}))
		t.must(a.qp.PostSend(message(transport.OpSend, 0)))
		t.until("the message", func() bool { return len(b.wcs) > 0 }, a, b)
		t.must(b.waits(func() {}))
		d := t.desk(b.dev, nil)
		d.take(b)
		t.drive("the event", func() bool { return d.told() == 1 }, a)
	}},
	{"CQ/N5_AnOverrunRaisesAnEvent", func(t *trial) {
		a, b, d := t.attended(shape{cqDepth: 4})
		d.with(func() {
			for range 32 {
				t.must(b.qp.PostRecv(&transport.RecvWR{}))
			}
		})
		for range 32 {
			if a.qp.PostSend(message(transport.OpSend, 0)) != nil {
				break
			}
		}
		var err error // may come after the event
		t.drive("the event and the queue pair's error", func() bool {
			d.with(func() { err = b.qp.Err() })
			return err != nil && d.told() > 0
		}, a)
		t.is(err, "the queue pair's error", transport.ErrOverrun)
	}},
	{"CQ/N6_HandlersOfDifferentLocksRunAtTheSameTime", func(t *trial) {
		const messages = 200
		mine, peers := t.board(2)
		if mine[0].dev.Query().Handlers < 2 {
			panic(failure{fmt.Errorf("the device supports one handler alone: %w", errors.ErrUnsupported)})
		}
		var desks [2]*desk
		var counts [2]int
		meet := make(chan struct{})
		for i, n := range mine {
			d := t.desk(n.dev, nil)
			desks[i] = d
			buf := n.memory(256, all)
			d.then = func(cq transport.CQ) error {
				if counts[i] == 0 { // neither returns from its first event before both are in one
					select {
					case meet <- struct{}{}:
					case <-meet:
					case <-time.After(t.timeout):
						return errors.New("the other handler does not run meanwhile")
					}
				}
				var wc [4]transport.WC
				for asked := 0; asked < 2; asked++ {
					for k := cq.Poll(wc[:]); k > 0; k = cq.Poll(wc[:]) {
						for _, c := range wc[:k] {
							if c.Status != transport.StatusSuccess {
								return c.Err
							}
							if err := check(buf.Bytes(), uint64(i), 1); err != nil {
								return err
							}
							counts[i]++
							m, err := n.pd.Register(make([]byte, 64), all) // a shared table
							if err == nil {
								err = m.Deregister()
							}
							if err = errors.Join(err, n.qp.PostRecv(recv(1, buf))); err != nil {
								return err
							}
						}
					}
					if err := cq.RequestNotify(transport.NotifyNext); err != nil {
						return err
					}
				}
				return nil
			}
			for range 32 {
				t.must(n.qp.PostRecv(recv(1, buf)))
			}
			t.must(n.recvCQ.RequestNotify(transport.NotifyNext))
			d.take(n)
		}
		var sources [2]transport.MR
		for i, p := range peers {
			sources[i] = p.memory(256, all)
			fill(sources[i].Bytes(), uint64(i), 1)
		}
		sent := [2]int{}
		t.drive("all messages of both", func() bool {
			ready := true
			for i, d := range desks {
				var have int
				d.with(func() { have = counts[i]; t.must(d.err) })
				for sent[i] < min(messages, have+32) && peers[i].qp.PostSend(send(1, sources[i])) == nil {
					sent[i]++
				}
				ready = ready && have == messages
			}
			return ready
		}, peers...)
	}},
	{"CQ/N7_LowLatencyGoesFirstAndBulkIsNotStarved", func(t *trial) {
		nodes, peers := t.board(3)
		for i, n := range nodes {
			n.qp.Abort(errors.New("to raise events"))
			t.drive("its end", func() bool { return n.qp.State() == transport.StateError }, peers[i])
		}
		gate, low, bulk := nodes[0], nodes[1], nodes[2]
		core := t.core(gate.dev)
		fast := t.desk(gate.dev, func(c *transport.HandlerConfig) { c.Core = core })
		slow := t.desk(gate.dev, func(c *transport.HandlerConfig) { c.Core, c.Class = core, transport.Bulk })
		var order []string
		turns, served := 0, false
		slow.then = func(transport.CQ) error {
			order = append(order, "bulk")
			served = true
			return nil
		}
		fast.then = func(cq transport.CQ) error {
			var wc [4]transport.WC
			cq.Poll(wc[:])
			if cq == gate.recvCQ { // everything that follows is decided on this thread
				slow.Lock()
				defer slow.Unlock()
				return errors.Join(raise(bulk), raise(low))
			}
			order = append(order, "low")
			if served || turns > 1000 {
				return nil
			}
			turns++
			return raise(low) // so that it always has another event
		}
		slow.take(bulk)
		fast.take(gate)
		fast.take(low)
		fast.with(func() { t.must(raise(gate)) })
		t.drive("bulk's turn", func() bool { return slow.told() > 0 })
		fast.with(func() {
			if len(order) == 0 || order[0] != "low" {
				t.failf("the order was %v", order)
			}
			if turns < 1 || turns > 2*transport.BulkAfter {
				t.failf("bulk had its turn after %d of low latency", turns)
			}
		})
	}},
	{"CQ/N8_CloseCompletesEverythingOnceAndDeliversTheEvents", func(t *trial) {
		a, b, d := t.attended(shape{separate: true})
		dst, far := b.memory(8, all), a.memory(8, all)
		d.arm(b.sendCQ, transport.NotifyNext)
		d.arm(b.recvCQ, transport.NotifySolicited)
		d.with(func() {
			for i := range uint64(5) {
				t.must(b.qp.PostRecv(recv(i, dst)))
			}
			for i := range uint64(5) { // Reads, for they need the peer, which is not driven
				t.must(b.qp.PostSend(read(i, dst, far)))
			}
		})
		t.must(b.dev.Close())
		if d.told() != 2 { // the handlers have ended, so no event can follow
			t.failf("%d events", d.told())
		}
		b.poll()
		seen := map[[2]uint64]bool{}
		for _, wc := range b.wcs {
			key := [2]uint64{uint64(wc.Op), wc.ID}
			early := wc.Op == transport.OpRead && wc.Status == transport.StatusSuccess && b.direct()
			if (wc.Status != transport.StatusFlushed || wc.Err == nil) && !early || seen[key] {
				t.failf("completion %+v", wc)
			}
			seen[key] = true
		}
		if len(seen) != 10 {
			t.failf("%d completions of 10 requests", len(seen))
		}
	}},
	{"CQ/N8_CloseUnderTrafficCompletesEverythingOnce", func(t *trial) {
		a, b, d := t.attended(shape{recvWR: 64})
		posted, completed := 0, map[uint64]bool{}
		var first error
		empty := func(cq transport.CQ) error {
			var wc [8]transport.WC
			for k := cq.Poll(wc[:]); k > 0; k = cq.Poll(wc[:]) {
				for _, c := range wc[:k] {
					if completed[c.ID] {
						return fmt.Errorf("request %d completed twice", c.ID)
					}
					completed[c.ID] = true
					if c.Status == transport.StatusSuccess {
						posted++
						first = errors.Join(first, b.qp.PostRecv(&transport.RecvWR{ID: uint64(posted)}))
					}
				}
			}
			return cq.RequestNotify(transport.NotifyNext)
		}
		d.then = func(cq transport.CQ) error { return errors.Join(empty(cq), empty(cq)) }
		d.with(func() {
			for range 32 {
				posted++
				t.must(b.qp.PostRecv(&transport.RecvWR{ID: uint64(posted)}))
			}
			t.must(empty(b.recvCQ))
		})
		sent := 0
		t.drive("traffic", func() bool {
			n, room := 0, 0
			d.with(func() { n, room = len(completed), posted })
			for sent < room && a.qp.PostSend(message(transport.OpSend, 0)) == nil {
				sent++
			}
			return n > 100
		}, a)
		t.must(b.dev.Close())
		d.with(func() {
			t.must(errors.Join(d.err, first, empty(b.recvCQ)))
			if len(completed) != posted {
				t.failf("%d completions of %d requests", len(completed), posted)
			}
		})
	}},
}
