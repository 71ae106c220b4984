package mpitest

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// LoseLane breaks a TCP connection that other ranks have made to a rank, as soon as it has carried so many
// bytes in one direction; bytes that it has taken and not passed on are lost. It needs Fabric("tcp"). Ranks
// have two connections, or lanes, to each peer then, unless Config sets WEFT_LANES: a program must not notice
// that one of them is lost. With one lane the two ranks fail to each other.
func LoseLane(rank, bytes int) Option {
	return func(o *options) { o.loses = &laneLoss{rank: rank, after: int64(bytes)} }
}

type laneLoss struct {
	rank  int
	after int64
}

// lossyGate passes connections to a rank on, and breaks one of them.
type lossyGate struct {
	listener net.Listener
	target   string
	left     int64 // bytes that a connection carries before it breaks
	broke    atomic.Bool
	works    sync.WaitGroup

	mu   sync.Mutex
	open []net.Conn
}

// tcpPrefix is what addresses of the TCP fabric begin with.
const tcpPrefix = "tcp:"

// newLossyGate listens in place of an address.
func newLossyGate(addr string, after int64) (*lossyGate, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &lossyGate{listener: l, target: strings.TrimPrefix(addr, tcpPrefix), left: after}
	g.works.Go(g.accept)
	return g, nil
}

func (g *lossyGate) addr() string { return tcpPrefix + g.listener.Addr().String() }

func (g *lossyGate) accept() {
	for {
		from, err := g.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", g.target)
		if err != nil {
			from.Close()
			continue
		}
		g.mu.Lock()
		g.open = append(g.open, from, to)
		g.mu.Unlock()
		g.works.Go(func() { g.pass(from, to) })
		g.works.Go(func() { g.pass(to, from) })
	}
}

// pass passes on what comes, until an end is closed or the connection is the one to break.
func (g *lossyGate) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	left, b := g.left, make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if left -= int64(n); left < 0 && g.broke.CompareAndSwap(false, true) {
			return
		}
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (g *lossyGate) close() {
	g.listener.Close()
	g.mu.Lock()
	for _, c := range g.open {
		c.Close()
	}
	g.mu.Unlock()
	g.works.Wait()
}

// loseLane has a gate stand before the rank that loses a lane, until what it returns is called.
func (j *job) loseLane(meeting *wireup.Meeting) (end func()) {
	var gate *lossyGate
	meeting.Via = func(rank int, card wireup.Card) {
		addr := card["tcp"]
		if rank != j.loses.rank || addr == "" {
			return
		}
		var err error
		if gate, err = newLossyGate(addr, j.loses.after); err != nil {
			j.t.Errorf("mpitest: LoseLane: %v", err)
			return
		}
		card["tcp"] = gate.addr()
	}
	return func() {
		if gate != nil {
			gate.close()
		}
	}
}
