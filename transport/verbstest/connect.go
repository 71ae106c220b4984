package verbstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// turnedAway checks that a connection from an impostor is refused, and leaves nothing behind on either side.
func turnedAway(change func(*transport.Identity), want ...error) func(*trial) {
	return func(t *trial) {
		devices := t.newDevices(2)
		a, b := t.open(devices[0], shape{}), t.open(devices[1], shape{})
		id := t.identity(0, 2)
		change(&id)
		a.listen(id)
		b.listen(t.identity(1, 2))
		err := a.dial(b)
		t.is(err, "Connect", want...)
		t.eventually("the other side's report",
			func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.refused) > 0 })
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.prepared > 0 {
			t.failf("Prepare was called for a peer that proved nothing")
		}
		if len(a.to(1)) > 0 || len(b.qps) > 0 {
			t.failf("a queue pair was handed over")
		}
		for _, err := range append(b.refused, err) {
			if bytes.Contains([]byte(err.Error()), secret[:]) {
				t.failf("the error tells the secret")
			}
		}
	}
}

// collision makes two ranks connect to each other at once, each twice.
func (t *trial) collision(rounds int, before func(a, b *node)) {
	for range rounds {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		before(a, b)
		errs := make([]error, 4)
		start := make(chan struct{})
		var ended sync.WaitGroup
		for i := range errs {
			ended.Go(func() {
				<-start
				if i%2 == 0 {
					errs[i] = a.dial(b)
				} else {
					errs[i] = b.dial(a)
				}
			})
		}
		close(start)
		ended.Wait()
		t.must(errors.Join(errs...))
		qa, qb := a.to(1), b.to(0)
		if len(qa) != 1 || len(qb) != 1 {
			t.failf("%d and %d queue pairs", len(qa), len(qb))
		}
		a.qp, b.qp = qa[0], qb[0]
		t.well(a, b)
		t.well(b, a)
		if len(a.to(1)) != 1 || len(b.to(0)) != 1 {
			t.failf("another queue pair came late")
		}
		t.closeAll()
	}
}

var connectChecks = []Check{
	{"Connect/PrivateDataIsExchanged", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		a.private, b.private = make([]byte, a.dev.Query().MaxPrivate), []byte{7}
		fill(a.private, 1, 1)
		a.qp, b.qp = t.connect(a, b)
		if !bytes.Equal(b.greeting[0], a.private) || !bytes.Equal(a.greeting[1], b.private) {
			t.failf("private data arrived as %v and %v", b.greeting[0], a.greeting[1])
		}
		t.well(a, b)
		t.well(b, a)
	}},
	{"Connect/TooMuchPrivateDataIsRefused", func(t *trial) {
		nodes := t.ranks(2, shape{})
		nodes[0].private = make([]byte, nodes[0].dev.Query().MaxPrivate+1)
		if err := nodes[0].dial(nodes[1]); err == nil {
			t.failf("Connect succeeded")
		}
	}},
	{"Connect/ReturnsAtOnceWhenConnected", func(t *trial) {
		a, b := t.pair(shape{})
		for range 3 {
			t.must(a.dial(b))
			t.must(b.dial(a))
		}
		if len(a.to(1)) != 1 || len(b.to(0)) != 1 {
			t.failf("%d and %d queue pairs", len(a.to(1)), len(b.to(0)))
		}
		t.well(a, b)
	}},
	{"Connect/EachPortHasAQueuePairOfItsOwn", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		for port := range ports {
			from, to := a, b
			if port%2 == 1 {
				from, to = b, a
			}
			for range 2 { // the second time it exists already
				t.must(from.dialAs(transport.PeerAt(to.rank, port), to.ep.Addr()))
			}
			toB, toA := transport.PeerAt(b.rank, port), transport.PeerAt(a.rank, port)
			t.eventually("the other end", func() bool { return len(b.to(toA)) > 0 && len(a.to(toB)) > 0 })
			if len(a.to(toB)) != 1 || len(b.to(toA)) != 1 {
				t.failf("%d and %d queue pairs through port %d", len(a.to(toB)), len(b.to(toA)), port)
			}
			a.qp, b.qp = a.to(toB)[0], b.to(toA)[0]
			for _, n := range nodes {
				if q := n.qp.Query(); q.Port != port || q.Peer != 1-n.rank {
					t.failf("a queue pair with rank %d through port %d", q.Peer, q.Port)
				}
			}
			t.well(a, b)
			t.well(b, a)
		}
	}},
	{"Connect/APortBeyondTheOtherRanksIsRefused", func(t *trial) {
		devices := t.newDevices(2)
		a, b := t.open(devices[0], shape{}), t.open(devices[1], shape{})
		id := t.identity(0, 2)
		id.Ports++
		a.listen(id)
		b.listen(t.identity(1, 2))
		t.is(a.dialAs(transport.PeerAt(b.rank, ports), b.ep.Addr()), "Connect", transport.ErrRefused)
		t.is(b.dialAs(transport.PeerAt(a.rank, ports), a.ep.Addr()), "Connect", transport.ErrInvalid)
		t.must(a.dial(b))
	}},
	{"Connect/CollisionGivesExactlyOneQueuePair", func(t *trial) { t.collision(15, func(_, _ *node) {}) }},
	{"Connect/CollisionForSureGivesExactlyOneQueuePair", func(t *trial) {
		collider, ok := t.provider.(Collider)
		if !ok {
			panic(failure{fmt.Errorf("the provider crosses no connects on command: %w",
				errors.ErrUnsupported)})
		}
		t.collision(3, func(a, b *node) { collider.Collide(a.dev, b.dev) })
	}},
	{"Connect/WrongSecretIsRefused", turnedAway(func(id *transport.Identity) { id.Secret[31] ^= 1 },
		transport.ErrAuth)},
	{"Connect/WrongJobIsRefused", turnedAway(func(id *transport.Identity) { id.Job = "another" },
		transport.ErrAuth, transport.ErrRefused)},
	{"Connect/RankBeyondTheJobsSizeIsRefused", turnedAway(func(id *transport.Identity) {
		id.Rank,
			id.Size = 5, 6
	},
		transport.ErrRefused, transport.ErrAuth)},
	{"Connect/TheListenersOwnRankIsRefused", func(t *trial) {
		devices := t.newDevices(2)
		a, b := t.open(devices[0], shape{}), t.open(devices[1], shape{})
		a.listen(t.identity(1, 2))
		b.listen(t.identity(1, 2))
		if err := a.dialAs(0, b.ep.Addr()); err == nil {
			t.failf("a rank connected to itself")
		}
		if len(b.to(1)) > 0 {
			t.failf("a queue pair was handed over")
		}
	}},
	{"Connect/AnotherRankThanExpectedIsRefused", func(t *trial) {
		nodes := t.ranks(3, shape{})
		t.is(nodes[0].dialAs(2, nodes[1].ep.Addr()), "Connect to rank 2 where rank 1 is",
			transport.ErrRefused, transport.ErrAuth)
	}},
	{"Connect/RankOutOfRangeIsRefusedAtTheCall", func(t *trial) {
		nodes := t.ranks(2, shape{})
		if err := nodes[0].dialAs(2, nodes[1].ep.Addr()); err == nil {
			t.failf("Connect to rank 2 of 2 succeeded")
		}
	}},
	{"Connect/PrepareMayRefuse", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		b.mu.Lock()
		b.refusal = errors.New("not today")
		b.mu.Unlock()
		t.is(a.dial(b), "Connect", transport.ErrRefused)
		if len(a.to(1)) > 0 || len(b.to(0)) > 0 {
			t.failf("a queue pair was handed over")
		}
		b.mu.Lock()
		b.refusal = nil
		b.mu.Unlock()
		a.qp, b.qp = t.connect(a, b) // a refusal does no lasting harm
		t.well(a, b)
	}},
	{"Connect/NobodyListens", func(t *trial) {
		nodes := t.ranks(2, shape{})
		addr := nodes[1].ep.Addr()
		t.must(nodes[1].dev.Close())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := nodes[0].ep.Connect(ctx, 1, addr); err == nil {
			t.failf("Connect succeeded")
		}
	}},
	{"Connect/TheContextEndsIt", func(t *trial) {
		nodes := t.ranks(2, shape{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := nodes[0].ep.Connect(ctx, 1, nodes[1].ep.Addr()); err != nil {
			t.is(err, "Connect with a context that has ended", context.Canceled)
		}
	}},
	{"Connect/QueuePairsOutliveTheEndpoint", func(t *trial) {
		a, b := t.pair(shape{})
		t.must(a.ep.Close())
		t.must(b.ep.Close())
		t.well(a, b)
		if err := a.ep.Connect(context.Background(), 1, b.ep.Addr()); err == nil {
			t.failf("Connect of a closed endpoint succeeded")
		}
	}},
	{"Connect/ConnectedMayPostAndNothingIsLost", func(t *trial) {
		for range 10 {
			devices := t.newDevices(2)
			var ends [2]*eager
			for i, d := range devices {
				n := t.open(d, shape{})
				n.rank = uint32(i)
				ends[i] = &eager{node: n, src: n.memory(64, all), dst: n.memory(64, all)}
				fill(ends[i].src.Bytes(), uint64(i), 1)
				var err error
				n.ep, err = d.Listen(t.identity(i, 2), ends[i])
				t.must(err)
			}
			a, b := ends[0].node, ends[1].node
			a.qp, b.qp = t.connect(a, b)
			t.until("both messages", func() bool { return len(a.wcs) == 2 && len(b.wcs) == 2 }, a, b)
			for i, e := range ends {
				t.must(e.failed)
				t.must(check(e.dst.Bytes(), uint64(1-i), 1))
			}
			t.closeAll()
		}
	}},
}

// eager posts a Recv and a Send as soon as it has its queue pair, even if the peer does not have its own yet.
type eager struct {
	*node
	src, dst transport.MR
	failed   error
}

func (e *eager) Connected(rank uint32, qp transport.QP, private []byte) {
	e.failed = errors.Join(qp.PostRecv(recv(1, e.dst)), qp.PostSend(send(2, e.src)))
	e.node.Connected(rank, qp, private)
}
