package verbstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// stream is one direction of random traffic.
//
// Every message has its own place in the memory of both ends, so that each can be checked byte by byte when
// it is complete, in any order of placement.
type stream struct {
	from, to *node
	qp, back transport.QP
	rng      *rand.Rand
	n        int // messages
	size     int // of a place
	src      transport.MR
	dst      transport.MR                  // target of Sends and Writes
	local    transport.MR                  // target of Reads
	remote   transport.MR                  // source of Reads
	views    map[transport.MR]transport.MR // of src and local, if the provider has views
	counter  transport.MR                  // counted up by Atomics
	counted  int                           // Atomics complete
	ops      []transport.Opcode
	lens     []int
	posted   int
	recvs    []int // messages that use a Recv, in order
	armed    int   // Recvs posted
	heard    int   // Recvs complete
	done     []bool
	finished int
}

const recvBase = 1 << 32 // ids of Recvs, distinct from those of sends

func newStream(from, to *node, qp, back transport.QP, seed uint64, n, size int) *stream {
	s := &stream{from: from, to: to, qp: qp, back: back, rng: random(seed), n: n, size: size,
		done: make([]bool, n)}
	s.src, s.local = from.memory(n*size, all), from.memory(n*size, all)
	s.dst, s.remote = to.memory(n*size, all), to.memory(n*size, all)
	s.counter = to.memory(8, allAtomic)
	s.views = from.viewed(s.src, s.local)
	for i := range n {
		s.ops = append(s.ops, []transport.Opcode{transport.OpSend, transport.OpWrite, transport.OpWriteImm,
			transport.OpRead,
			transport.OpFetchAdd}[s.rng.IntN(5)])
		s.lens = append(s.lens, s.rng.IntN(1+s.rng.IntN(size)))
		if s.ops[i] == transport.OpFetchAdd {
			s.lens[i] = 8
		}
		fill(s.source(i), uint64(from.rank), uint64(i))
		fill(s.place(s.remote, i), uint64(to.rank), uint64(i))
		if s.ops[i] == transport.OpSend || s.ops[i] == transport.OpWriteImm {
			s.recvs = append(s.recvs, i)
		}
	}
	return s
}

func (s *stream) place(m transport.MR, i int) []byte {
	return m.Bytes()[i*s.size : i*s.size+s.lens[i]]
}

func (s *stream) source(i int) []byte { return s.place(s.src, i) }

// arm posts as many Recvs at the far end as there is room for.
func (s *stream) arm() error {
	for ; s.armed < len(s.recvs) && s.armed < s.heard+s.to.shape.recvWR; s.armed++ {
		i := s.recvs[s.armed]
		wr := &transport.RecvWR{ID: recvBase + uint64(i)}
		if s.ops[i] == transport.OpSend {
			wr.Local = s.cut(s.dst, i)
		}
		if err := s.back.PostRecv(wr); err != nil {
			return fmt.Errorf("receive for message %d: %w", i, err)
		}
	}
	return nil
}

func (s *stream) cut(m transport.MR, i int) []transport.SGE {
	k := 1 + s.rng.IntN(min(4, s.from.dev.Query().MaxSGE))
	list := slices(m, s.lens[i], k)
	for j := range list {
		list[j].Offset += i * s.size
	}
	return list
}

// post posts the next message, if its Recv is there and the queue has room; false if it did not.
func (s *stream) post() (bool, error) {
	i := s.posted
	if i == s.n || len(s.recvs) > s.armed && s.recvs[s.armed] <= i {
		return false, nil
	}
	wr := &transport.SendWR{ID: uint64(i), Op: s.ops[i], Flags: transport.FlagSignaled}
	wr.Local = s.cut(s.src, i)
	switch wr.Op {
	case transport.OpRead:
		wr.Local = s.cut(s.local, i)
		at := i * s.size
		for _, e := range s.cut(s.remote, i) {
			wr.Remote = append(wr.Remote, segment(s.remote, at, e.Length))
			at += e.Length
		}
		if len(wr.Remote) == 0 {
			wr.Remote = []transport.Segment{segment(s.remote, at, 0)}
		}
	case transport.OpFetchAdd:
		wr.Local, wr.Remote = []transport.SGE{part(s.local, i*s.size, 8)},
			[]transport.Segment{segment(s.counter, 0, 8)}
		wr.Operand = 1
	case transport.OpWrite, transport.OpWriteImm:
		if s.lens[i] > 0 {
			wr.Remote = []transport.Segment{segment(s.dst, i*s.size, s.lens[i])}
		}
		wr.Imm = immediate(i)
	}
	if s.rng.IntN(4) == 0 {
		wr.Flags |= transport.FlagMore
	}
	if s.rng.IntN(8) == 0 {
		wr.Flags |= transport.FlagFence
	}
	if !asks(wr.Op) && s.lens[i] <= s.from.dev.Query().MaxInline && s.rng.IntN(2) == 0 {
		wr.Flags |= transport.FlagInline
	}
	if wr.Flags&transport.FlagInline == 0 && (wr.Op == transport.OpWrite || wr.Op == transport.OpRead) {
		for j := range wr.Local {
			if v := s.views[wr.Local[j].MR]; v != nil && s.rng.IntN(2) == 0 {
				wr.Local[j].MR = v
			}
		}
	}
	if err := s.qp.PostSend(wr); err != nil {
		return false, err
	}
	s.posted++
	return true, nil
}

// hear handles a completion of a Recv at the far end. It is a delivered completion: everything before it is
// placed.
func (s *stream) hear(wc transport.WC) error {
	i := s.recvs[s.heard]
	if wc.ID != recvBase+uint64(i) || wc.Status != transport.StatusSuccess {
		return fmt.Errorf("receive %d of message %d: %+v", s.heard, i, wc)
	}
	before := 0
	if s.heard > 0 {
		before = s.recvs[s.heard-1]
	}
	s.heard++
	if s.ops[i] == transport.OpWriteImm && (!wc.HasImm || wc.Imm != immediate(i)) ||
		s.ops[i] == transport.OpSend && (wc.HasImm || wc.Bytes != s.lens[i]) {
		return fmt.Errorf("message %d of %d bytes: %+v", i, s.lens[i], wc)
	}
	for j := before; j <= i; j++ {
		if asks(s.ops[j]) {
			continue
		}
		if err := check(s.place(s.dst, j), uint64(s.from.rank), uint64(j)); err != nil {
			return fmt.Errorf("when message %d was delivered: %w", i, err)
		}
	}
	return nil
}

// complete handles a completion of a request at the near end.
func (s *stream) complete(wc transport.WC) error {
	if wc.ID >= uint64(s.posted) || s.done[wc.ID] || wc.Status != transport.StatusSuccess ||
		wc.Op != s.ops[wc.ID] {
		return fmt.Errorf("completion %+v", wc)
	}
	i := int(wc.ID)
	s.done[i] = true
	s.finished++
	if wc.Op == transport.OpFetchAdd {
		if got := binary.NativeEndian.Uint64(s.place(s.local, i)); wc.Bytes != 8 || got != uint64(s.counted) {
			return fmt.Errorf("Atomic %d found %d and %d were before it: %+v", i, got, s.counted, wc)
		}
		s.counted++
	}
	if wc.Op == transport.OpRead {
		if wc.Bytes != s.lens[i] {
			return fmt.Errorf("Read %d of %d bytes: %+v", i, s.lens[i], wc)
		}
		return check(s.place(s.local, i), uint64(s.to.rank), uint64(i))
	}
	return nil
}

func (s *stream) over() bool { return s.finished == s.n && s.heard == len(s.recvs) }

// last checks the messages that no completion reported.
func (s *stream) last() bool {
	for i, op := range s.ops {
		if !asks(op) && !bytes.Equal(s.place(s.dst, i), s.source(i)) {
			return false
		}
	}
	return true
}

// sortOut passes a rank's polled completions to their streams.
func sortOut(n *node, streams []*stream) error {
	for _, wc := range n.wcs {
		for _, s := range streams {
			var err error
			switch {
			case s.to == n && wc.QP == s.back.Num() && wc.ID >= recvBase:
				err = s.hear(wc)
			case s.from == n && wc.QP == s.qp.Num() && wc.ID < recvBase:
				err = s.complete(wc)
			default:
				continue
			}
			if err != nil {
				return fmt.Errorf("rank %d to rank %d: %w", s.from.rank, s.to.rank, err)
			}
			break
		}
	}
	n.wcs = n.wcs[:0]
	return nil
}

func randomTraffic(seed uint64, s shape, n, size int) func(*trial) {
	return func(t *trial) {
		a, b := t.pair(s)
		streams := []*stream{newStream(a, b, a.qp, b.qp, seed, n, size),
			newStream(b, a, b.qp, a.qp, seed+1, n, size)}
		t.until("all of the random traffic", func() bool {
			over := true
			for _, x := range []*node{a, b} {
				t.must(sortOut(x, streams))
			}
			for _, s := range streams {
				t.must(s.arm())
				for range s.rng.IntN(8) {
					if ok, err := s.post(); !ok {
						if err != nil {
							t.is(err, "random request", transport.ErrQueueFull)
						}
						break
					}
				}
				if s.rng.IntN(4) == 0 {
					s.qp.Flush()
				}
				over = over && s.over()
			}
			return over && streams[0].last() && streams[1].last()
		}, a, b)
		t.none(a, b)
		t.well(a, b)
	}
}

var randomChecks = []Check{
	{"Random/SmallMessagesBothWays", randomTraffic(1, shape{}, 1500, 200)},
	{"Random/ShortQueues", randomTraffic(2, shape{sendWR: 3, recvWR: 4, reads: 1}, 400, 500)},
	{"Random/LargeMessagesBothWays", randomTraffic(3, shape{separate: true}, 60, 300_000)},
	{"Random/ManyRanksEachWithAGoroutineOfItsOwn", func(t *trial) {
		nodes := t.ranks(4, shape{})
		for i, x := range nodes {
			for _, y := range nodes[:i] {
				t.connect(x, y)
			}
		}
		var members []*member
		// before the goroutines start: a Recv must be posted when a message comes
		for _, x := range nodes {
			members = append(members, newMember(x, nodes))
		}
		done := make(chan error, len(members))
		for _, m := range members {
			go func() { done <- m.run() }()
		}
		var failed error
		for range members {
			failed = errors.Join(failed, <-done)
		}
		t.must(failed)
	}},
}

// member is a rank that sends to every other rank and receives as much, on its own goroutine.
type member struct {
	*node
	src, dst transport.MR
	qps      []transport.QP
	posted   []int // Sends to each
}

const memberMessages, memberSize = 60, 400

func newMember(x *node, nodes []*node) *member {
	m := &member{node: x, src: x.memory(memberMessages*memberSize, all),
		dst: x.memory(len(nodes)*memberMessages*memberSize, all)}
	for i := range memberMessages {
		fill(m.src.Bytes()[i*memberSize:(i+1)*memberSize], uint64(x.rank), uint64(i))
	}
	for _, y := range nodes {
		if y == x {
			continue
		}
		q := x.to(y.rank)[0]
		m.qps = append(m.qps, q)
		for i := range memberMessages {
			k := int(y.rank)*memberMessages + i
			wr := &transport.RecvWR{ID: recvBase + uint64(k),
				Local: []transport.SGE{part(m.dst, k*memberSize, memberSize)}}
			x.t.must(q.PostRecv(wr))
		}
	}
	m.posted = make([]int, len(m.qps))
	return m
}

func (m *member) run() error {
	want := 2 * memberMessages * len(m.qps)
	end := time.Now().Add(m.t.timeout)
	for seen := 0; seen < want; {
		if time.Now().After(end) {
			return fmt.Errorf("rank %d waited in vain: %d of %d completions", m.rank, seen, want)
		}
		for i, q := range m.qps {
			for ; m.posted[i] < memberMessages; m.posted[i]++ {
				wr := send(uint64(m.posted[i]), m.src)
				wr.Local[0] = part(m.src, m.posted[i]*memberSize, memberSize)
				if err := q.PostSend(wr); errors.Is(err, transport.ErrQueueFull) {
					break
				} else if err != nil {
					return err
				}
			}
		}
		m.poll()
		for _, wc := range m.wcs {
			if wc.Status != transport.StatusSuccess {
				return fmt.Errorf("rank %d: completion %+v", m.rank, wc)
			}
			if wc.ID >= recvBase {
				k := wc.ID - recvBase
				at := m.dst.Bytes()[k*memberSize : (k+1)*memberSize]
				if err := check(at, k/memberMessages, k%memberMessages); err != nil {
					return err
				}
			}
		}
		seen += len(m.wcs)
		m.wcs = m.wcs[:0]
		if err := m.recvCQ.Wait(time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
