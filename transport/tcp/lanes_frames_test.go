package tcp

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// beginLanes makes the queue pair one over lanes, each with the test at its other end. None is re-established.
func (s *session) beginLanes(tb testing.TB, fd int, initiator bool) {
	newMultiLane(s.qp, fd, nil, initiator, [message.TokenSize]byte{}, routes{})
	b := lanesOf(s.qp)
	for i := range b.dial.dialing {
		b.dial.dialing[i] = true
	}
	for number := 1; number < s.lanes; number++ {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		require.NoError(tb, err)
		for _, fd := range fds {
			require.NoError(tb, syscall.SetNonblock(fd, true))
		}
		l := &laneConn{m: b, number: uint16(number), slot: number, greeted: true}
		l.connect(fds[0], nil)
		b.conns = append(b.conns, l)
		s.wires = append(s.wires, fds[1])
	}
}

// hostile is a peer over lanes that keeps most rules: its frames come in any order that numbers allow, over
// any lane, some again, some in part, and now and then with something wrong in them.
type hostile struct {
	*script
	next  uint64 // number of the next frame
	asks  uint64
	ready [][]byte // frames that can go, without the lane's number
	past  [][]byte // that have gone
	broke bool     // a rule, for sure or perhaps
}

// makes makes the next frame of the sequence.
func (p *hostile) makes() {
	for {
		o := frame.Op(1 + p.rand.IntN(int(frame.Ops)-1))
		h, payload, ok := ruleAbiding[o](p.script)
		if !ok || o == frame.Alive {
			continue
		}
		h.Op = o
		ref := uint64(0)
		switch o {
		case frame.Write:
			ref = p.next
			if p.rand.IntN(4) == 0 && p.next > 1 {
				ref -= 1 // of more than one frame
			}
		case frame.ReadRequest, frame.Atomic:
			ref = p.asks
			p.asks++
		}
		f := frame.AppendOverLane(nil, h, 0, p.next, 0, ref, payload, false)
		p.next++
		if p.rand.IntN(25) == 0 {
			f = p.breaks(f)
		}
		p.ready = append(p.ready, f)
		return
	}
}

// breaks changes something of a frame.
func (p *hostile) breaks(f []byte) []byte {
	p.broke = true
	at := p.rand.IntN(frame.LaneHeaderSize)
	switch p.rand.IntN(5) {
	case 0:
		f[at] ^= 1 << p.rand.IntN(8)
	case 1:
		copy(f[frame.HeaderSize:], le64(p.next+p.rand.Uint64N(2*frame.Window)))
	case 2:
		copy(f[frame.HeaderSize+16:], le64(p.rand.Uint64N(2*p.next)))
	case 3:
		copy(f[16:24], le64(p.rand.Uint64()>>p.rand.IntN(64)))
	case 4:
		f = f[:p.rand.IntN(len(f))]
	}
	return f
}

// goes sends a frame on some lane.
func (p *hostile) goes() bool {
	q := p.qp
	i := p.rand.IntN(min(len(p.ready), 1+p.rand.IntN(12)))
	f := p.ready[i]
	switch p.rand.IntN(30) {
	case 0:
		if len(p.past) > 0 {
			f = p.past[p.rand.IntN(len(p.past))] // once more
			break
		}
		fallthrough
	default:
		p.ready = append(p.ready[:i], p.ready[i+1:]...)
		p.past = append(p.past, f)
	case 1:
		f = p.tellsLost()
	}
	f = append([]byte(nil), f...)
	number := p.rand.IntN(p.lanes)
	if len(f) >= frame.LaneHeaderSize {
		f[6], f[7] = byte(number), 0
		ack := p.rand.Uint64N(lanesOf(q).send.out.Next() + 1)
		if p.rand.IntN(3) == 0 || ack == 0 {
			ack = lanesOf(q).send.out.Next()
		}
		copy(f[frame.HeaderSize+8:], le64(ack))
	}
	fd := p.wire
	if number > 0 {
		fd = p.wires[number-1]
	}
	for len(f) > 0 && q.open {
		n := len(f)
		if p.rand.IntN(4) == 0 {
			n = 1 + p.rand.IntN(n)
		}
		n, err := syscall.Write(fd, f[:n])
		if err == syscall.EPIPE {
			return len(lanesOf(q).conns) > 0
		}
		f = f[max(n, 0):]
		if p.rand.IntN(3) > 0 {
			p.poll()
		}
		for _, fd := range append(p.wires[:len(p.wires):len(p.wires)], p.wire) {
			for n := 1; n > 0; {
				n, _ = syscall.Read(fd, sink[:])
			}
		}
	}
	return q.open && len(lanesOf(q).conns) > 0
}

// tellsLost is a Lost frame of lanes, of which some are.
func (p *hostile) tellsLost() []byte {
	t := frame.LostLanes{Version: p.rand.Uint32N(6), Heard: p.rand.Uint32N(6)}
	for range p.rand.IntN(3) {
		t.Closed = append(t.Closed, uint16(p.rand.IntN(2*p.lanes)))
	}
	ack := lanesOf(p.qp).send.out.Next()
	var ranges []frame.Range
	if p.rand.IntN(2) == 0 {
		from := ack + 1 + p.rand.Uint64N(4)
		ranges = append(ranges, frame.Range{From: from, To: from + p.rand.Uint64N(8)})
	}
	return frame.AppendOverLane(nil, frame.Header{Op: frame.Lost, Flags: frame.Last}, 0, 0, 0, 0,
		frame.AppendLost(nil, t, ack, ranges), false)
}

// Whatever a proven peer sends over lanes: nothing outside what was granted is written, nothing grows, every
// request completes once.
func TestLanes_HostilePeers(t *testing.T) {
	g := newGround(t)
	g.lanes = 3
	rounds, frames, ended := 3000, 0, map[transport.State]int{}
	if !testlength.Whole() {
		rounds /= 10
	}
	for round := range rounds {
		p := &hostile{script: &script{ground: g, rand: rand.New(rand.NewPCG(uint64(round), 11))}, next: 1}
		g.enters(t, true, p.rand.IntN(8) == 0)
		for range 120 {
			for len(p.ready) < 12 {
				p.makes()
			}
			frames++
			if !p.goes() {
				break
			}
		}
		g.poll()
		b := lanesOf(g.qp)
		if g.qp.open && (b.recv.in.Holds() > frame.Window || b.failover.Len() > 2*frame.MaxLostLanes ||
			len(b.recv.messages) > 2*(groundRecvs+8)) {
			t.Fatalf("round %d: %d tails, %d lanes, %d particulars", round, b.recv.in.Holds(), b.failover.Len(),
				len(b.recv.messages))
		}
		ended[g.qp.State()]++
		if testing.Verbose() && round < 40 {
			t.Logf("round %d: %v %v", round, g.qp.State(), g.qp.Err())
		}
		g.leaves(t, "round "+string(rune('0'+round%10)))
	}
	t.Logf("%d frames; %v", frames, ended)
	require.NotZero(t, ended[transport.StateError])
	require.NotZero(t, ended[transport.StateReady]+ended[transport.StateClosing]+ended[transport.StateDraining])
	require.Greater(t, frames, 10*rounds)
}
