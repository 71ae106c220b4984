package verbstest

import (
	"context"
	"io"
	"net"

	"github.com/weft-mpi/weft/transport"
)

// transferrer returns the endpoint of a node, which takes over streams of the application.
func (n *node) transferrer() transport.Transferrer {
	n.t.needs(n.dev.Query().StreamTransfer, "streams of an application's")
	return n.ep
}

// stream returns both ends of a connection that an application has made.
func (t *trial) stream() (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	t.must(err)
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	t.must(err)
	b, err = l.Accept()
	t.must(err)
	return a, b
}

// transfer begins one side of a transfer.
func (n *node) transfer(conn net.Conn, ahead []byte, role transport.Role, to *node) <-chan error {
	result := make(chan error, 1)
	e := n.transferrer()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), n.t.timeout)
		defer cancel()
		result <- e.Transfer(ctx, conn, ahead, role, to.rank)
	}()
	return result
}

// taken checks that both sides of a transfer have succeeded, and that the connection works.
func (t *trial) taken(a, b *node, results ...<-chan error) {
	for _, r := range results {
		t.must(<-r)
	}
	qa, qb := a.to(b.rank), b.to(a.rank)
	if len(qa) == 0 || len(qb) == 0 {
		t.failf("Transfer returned before Connected was called")
	}
	a.qp, b.qp = qa[len(qa)-1], qb[len(qb)-1]
	t.well(a, b)
	t.well(b, a)
}

var streamChecks = []Check{
	{"Stream/C2_AnApplicationsOwnIsTransferredAfterItsUse", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		a.transferrer()
		for range 3 {
			ca, cb := t.stream()
			for _, way := range [][2]net.Conn{{ca, cb}, {cb, ca}} {
				_, err := way[0].Write([]byte("go over to RDMA\n"))
				t.must(err)
				_, err = io.ReadFull(way[1], make([]byte, 16))
				t.must(err)
			}
			t.taken(a, b, b.transfer(cb, nil, transport.Initiator, a),
				a.transfer(ca, nil, transport.Responder, b))
			a.qp.Release()
			b.qp.Release()
		}
	}},
	{"Stream/C2_WhatTheApplicationHasReadAheadIsTaken", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		a.transferrer()
		ca, cb := t.stream()
		initiator := a.transfer(ca, nil, transport.Initiator, b)
		ahead := make([]byte, 4096)
		n, err := cb.Read(ahead)
		t.must(err)
		t.taken(a, b, initiator, b.transfer(cb, ahead[:n], transport.Responder, a))
	}},
	{"Stream/C2_BytesThatDoNotBelongAreRejectedAtBothEnds", func(t *trial) {
		nodes := t.ranks(2, shape{})
		a, b := nodes[0], nodes[1]
		a.transferrer()
		for _, role := range []transport.Role{transport.Initiator, transport.Responder} {
			ca, cb := t.stream()
			own := a.transfer(ca, []byte("the application's"), role, b)
			other := b.transfer(cb, nil, transport.Initiator+transport.Responder-role, a)
			t.is(<-own, "a transfer with bytes of the application's", transport.ErrNotWeft)
			t.is(<-other, "its other end", transport.ErrRefused)
		}
		if len(a.to(1)) > 0 || len(b.to(0)) > 0 {
			t.failf("a queue pair was handed over")
		}
	}},
	{"Stream/C2_WhatIsNoSocketIsRefusedAtTheCall", func(t *trial) {
		nodes := t.ranks(2, shape{})
		nodes[0].transferrer()
		pipe, end := net.Pipe()
		t.is(<-nodes[0].transfer(pipe, nil, transport.Initiator, nodes[1]), "Transfer of a pipe",
			transport.ErrInvalid)
		if _, err := end.Read(make([]byte, 1)); err == nil {
			t.failf("the connection was not closed")
		}
	}},
	{"Stream/C5_TheContextEndsIt", func(t *trial) {
		nodes := t.ranks(2, shape{})
		e := nodes[0].transferrer()
		ca, cb := t.stream()
		defer cb.Close()
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() { result <- e.Transfer(ctx, ca, nil, transport.Initiator, 1) }()
		_, err := io.ReadFull(cb, make([]byte, 1)) // the handshake has begun
		t.must(err)
		cancel()
		t.is(<-result, "Transfer with a context that has ended", context.Canceled)
		if _, err := io.Copy(io.Discard, cb); err != nil {
			t.failf("the connection was not closed: %v", err)
		}
	}},
}
