package coll

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// operator combines two elements.
type operator struct {
	elemSize int
	combine  func(dst, left, right []byte) // dst is one of the two
}

// job is a collective operation with its operands, carried out by all ranks together.
type job struct {
	size  int
	build func(s *Schedule, rank int)
	op    operator

	input func(rank int) []byte
	// the length; where Output is not significant it is 0, so that any use is out of bounds
	output func(rank int) int
	// inPlace makes the shorter of Input and Output the part of the longer one from this byte on, as
	// MPI_IN_PLACE does.
	inPlace func(rank int) (offset int, ok bool)
}

// untouched is what Output is filled with at first.
const untouched = 0xEE

// process is a rank that carries out its schedule.
type process struct {
	rank     int
	schedule *Schedule
	memory   [3][]byte
	exposed  [2][]byte // what others find in Input and Output
	original []byte    // what Input was
	round    int
	pending  int    // sends and receives of the round that are not complete
	output   []byte // what Output was at the end
	changed  bool   // Input was, by then
}

// message is a send and a receive that belong together: the n-th of each between two ranks.
type message struct {
	of       Kind // the end that is posted first
	from, to int
	src, dst []byte // nil until posted
	early    []byte // the bytes as they were at the send, if it completed at once
	eager    bool
}

// world carries out the schedules of all ranks in an order drawn from a seed. A send completes at once and
// its bytes are taken there and then, or not before its receive is posted and its bytes are taken later
// still, as a rendezvous does; depending on the seed that is so for all sends, half of them, or none. What a
// receive is to fill holds garbage until then.
type world struct {
	r         *rand.Rand
	eager     int // the share of sends that complete at once, in halves
	op        operator
	processes []process
	half      map[int][]*message // those of which one end is posted, by from · ranks + to
	ready     []event
}

// event is a message that can be transferred, or the start of a rank's next round.
type event struct {
	transfer *message
	start    int
}

func (b Buffer) String() string {
	return [...]string{"input", "output", "scratch"}[b]
}

func (p Span) String() string {
	if p.Len == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%v[%d:%d]", p.Buf, p.Off, p.Off+p.Len)
}

func (s Step) String() string {
	switch s.Kind {
	case Send:
		return fmt.Sprintf("send %v to %d", s.Src, s.Peer)
	case Recv:
		return fmt.Sprintf("receive %v from %d", s.Dst, s.Peer)
	case Copy:
		return fmt.Sprintf("%v = %v", s.Dst, s.Src)
	case ReduceLeft:
		return fmt.Sprintf("%v = op(%v, itself)", s.Dst, s.Src)
	case ReduceRight:
		return fmt.Sprintf("%v = op(itself, %v)", s.Dst, s.Src)
	case Combine:
		return fmt.Sprintf("%v = op of all in %v", s.Dst, s.Src)
	case Publish:
		return fmt.Sprintf("publish %v", s.Src)
	case Pull:
		return fmt.Sprintf("%v = %v of %d", s.Dst, s.Src, s.Peer)
	case Push:
		return fmt.Sprintf("%v of %d = %v", s.Dst, s.Peer, s.Src)
	}
	return fmt.Sprintf("unknown kind %d", s.Kind)
}

// run returns the outputs of all ranks.
func (j job) run(seed uint64) ([][]byte, error) {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 7)), eager: int(seed % 3), op: j.op, processes: make([]process, j.size),
		half: map[int][]*message{},
	}
	for rank := range w.processes {
		p := &w.processes[rank]
		p.rank, p.schedule = rank, &Schedule{}
		barrierDissemination(p.schedule, 3, 7) // something that has to be forgotten
		p.schedule.Reset()
		j.build(p.schedule, rank)
		p.original = j.input(rank)
		p.memory[Output] = bytes.Repeat([]byte{untouched}, j.output(rank))
		p.memory[Input] = bytes.Clone(p.original)
		if j.inPlace != nil {
			if offset, ok := j.inPlace(rank); ok {
				if n := len(p.memory[Output]); n < len(p.original) {
					p.memory[Output] = p.memory[Input][offset : offset+n : offset+n]
				} else {
					p.memory[Input] = p.memory[Output][offset : offset+len(p.original)]
					copy(p.memory[Input], p.original)
				}
				p.original = nil
			}
		}
		p.memory[Scratch] = w.garbage(p.schedule.Scratch)
		w.expose(p)
		w.ready = append(w.ready, event{start: rank})
		for i := range p.schedule.Rounds() {
			if err := p.inspect(p.schedule.Round(i), j.op.elemSize); err != nil {
				return nil, fmt.Errorf("rank %d, round %d: %w", rank, i, err)
			}
		}
	}
	for len(w.ready) > 0 {
		i := w.r.IntN(len(w.ready))
		e := w.ready[i]
		w.ready[i] = w.ready[len(w.ready)-1]
		w.ready = w.ready[:len(w.ready)-1]
		var err error
		if e.transfer != nil {
			err = w.transfer(e.transfer)
		} else {
			err = w.start(&w.processes[e.start])
		}
		if err != nil {
			return nil, err
		}
	}
	for _, half := range w.half {
		for _, m := range half {
			return nil, fmt.Errorf("from %d to %d: only one end was posted (%d bytes to send, %d to receive)",
				m.from, m.to, len(m.src), len(m.dst))
		}
	}
	outputs := make([][]byte, j.size)
	for rank := range w.processes {
		p := &w.processes[rank]
		if p.round <= p.schedule.Rounds() {
			return nil, fmt.Errorf("deadlock: rank %d waits in round %d", rank, p.round-1)
		}
		if p.changed {
			return nil, fmt.Errorf("rank %d: Input was changed", rank)
		}
		outputs[rank] = p.output
	}
	return outputs, nil
}

func (w *world) garbage(n int) []byte {
	b := make([]byte, n)
	w.spoil(b)
	return b
}

func (w *world) spoil(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = byte(w.r.Uint32()) | 0x80
	for filled := 1; filled < len(b); filled *= 2 {
		copy(b[filled:], b[:filled])
	}
}

func (p *process) bytes(s Span) []byte {
	return p.memory[s.Buf][s.Off : s.Off+s.Len : s.Off+s.Len]
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	// The capacities end where the spans end, so the slices are told apart by the addresses of their bytes.
	first, second := address(a), address(b)
	return first < second+uintptr(len(b)) && second < first+uintptr(len(a))
}

// expose has others find the buffers themselves, or what has been copied out of them.
func (w *world) expose(p *process) {
	staged := w.r.IntN(2) == 0
	for buf := range p.exposed {
		switch {
		case !staged:
			p.exposed[buf] = p.memory[buf]
		case p.schedule.Late>>buf&1 != 0:
			p.exposed[buf] = w.garbage(len(p.memory[buf]))
		default:
			p.exposed[buf] = bytes.Clone(p.memory[buf])
		}
	}
}

// inspect holds a round against the rules of the package's documentation.
func (p *process) inspect(steps []Step, elemSize int) error {
	if len(steps) == 0 {
		return fmt.Errorf("no steps")
	}
	last := 0
	for i, s := range steps {
		stage := 2
		switch s.Kind {
		case Recv:
			stage = 0
		case Send:
			stage = 1
		}
		if stage < last {
			return fmt.Errorf("%v comes too late", s)
		}
		last = stage
		spans := []Span{s.Src, s.Dst}
		switch s.Kind {
		case Send, Push:
			spans = spans[:1]
		case Recv, Pull:
			spans = spans[1:]
		}
		for _, span := range spans {
			if span.Off < 0 || span.Len < 0 || span.Off+span.Len > len(p.memory[span.Buf]) {
				return fmt.Errorf("%v: out of %d bytes", s, len(p.memory[span.Buf]))
			}
		}
		if s.Kind != Send && s.Kind != Push && s.Dst.Buf == Input && s.Dst.Len > 0 {
			return fmt.Errorf("%v writes the input", s)
		}
		switch s.Kind {
		case Send, Recv, Pull, Push:
			if s.Peer < 0 || s.Peer == p.rank {
				return fmt.Errorf("%v: no such peer", s)
			}
			if p.schedule.Pulls && s.Kind <= Recv && s.Src.Len+s.Dst.Len > 0 {
				return fmt.Errorf("%v: a message with bytes", s)
			}
		case Publish:
			if p.schedule.Late>>s.Src.Buf&1 == 0 {
				return fmt.Errorf("%v: others may read all of that from the beginning", s)
			}
		default:
			src, dst := p.bytes(s.Src), p.bytes(s.Dst)
			if s.Kind == Combine && len(dst) > 0 && len(src)%len(dst) == 0 {
				src = src[:len(dst)]
			}
			if len(src) != len(dst) || len(src) == 0 {
				return fmt.Errorf("%v: lengths", s)
			}
			if overlap(src, dst) && (s.Kind != Copy || address(src) != address(dst)) {
				return fmt.Errorf("%v: the two overlap", s)
			}
			if s.Kind != Copy {
				if s.Src.Buf != Scratch && (s.Kind != ReduceRight || s.Src.Buf != Input) {
					return fmt.Errorf("%v: what is combined from is to be scratch", s)
				}
				for _, n := range []int{s.Src.Off, s.Src.Len, s.Dst.Off} {
					if n%elemSize != 0 {
						return fmt.Errorf("%v: not whole elements of %d bytes", s, elemSize)
					}
				}
			}
		}
		if s.Kind != Recv {
			continue
		}
		for k, o := range steps {
			if o.Kind == Recv && k != i && overlap(p.bytes(s.Dst), p.bytes(o.Dst)) ||
				o.Kind == Send && overlap(p.bytes(s.Dst), p.bytes(o.Src)) {
				return fmt.Errorf("%v while %v is pending", o, s)
			}
		}
	}
	return nil
}

// start finishes the round that is complete and begins the next.
func (w *world) start(p *process) error {
	if p.round > 0 {
		for _, s := range p.schedule.Round(p.round - 1) {
			if err := w.local(p, s); err != nil {
				return err
			}
		}
	}
	p.round++
	if p.round > p.schedule.Rounds() {
		w.finish(p)
		return nil
	}
	for _, s := range p.schedule.Round(p.round - 1) {
		switch s.Kind {
		case Recv:
			w.spoil(p.bytes(s.Dst))
			p.pending++
			m, both, err := w.end(Recv, s.Peer, p.rank)
			if err != nil {
				return err
			}
			if m.dst = p.bytes(s.Dst); both {
				w.ready = append(w.ready, event{transfer: m})
			}
		case Send:
			m, both, err := w.end(Send, p.rank, s.Peer)
			if err != nil {
				return err
			}
			m.src = p.bytes(s.Src)
			if m.eager = w.r.IntN(2) < w.eager; m.eager {
				m.early = bytes.Clone(m.src)
			} else {
				p.pending++
			}
			if both {
				w.ready = append(w.ready, event{transfer: m})
			}
		}
	}
	w.settle(p)
	return nil
}

// finish keeps what a rank has at its end. The caller does as he likes with the buffers then.
func (w *world) finish(p *process) {
	p.changed = p.original != nil && !bytes.Equal(p.original, p.memory[Input])
	p.output = bytes.Clone(p.memory[Output])
	if p.schedule.Pulls {
		w.spoil(p.memory[Input])
		w.spoil(p.memory[Output])
	}
}

// end finds the message of which one end is being posted, and tells whether the other one was.
func (w *world) end(of Kind, from, to int) (m *message, both bool, err error) {
	if from >= len(w.processes) || to >= len(w.processes) {
		return nil, false, fmt.Errorf("from %d to %d: there are %d ranks", from, to, len(w.processes))
	}
	pair := from*len(w.processes) + to
	half := w.half[pair]
	if len(half) > 0 && half[0].of != of {
		w.half[pair] = half[1:]
		return half[0], true, nil
	}
	m = &message{of: of, from: from, to: to}
	w.half[pair] = append(half, m)
	return m, false, nil
}

func (w *world) transfer(m *message) error {
	if len(m.src) != len(m.dst) {
		return fmt.Errorf("from %d to %d: %d bytes are sent, %d are expected", m.from, m.to, len(m.src),
			len(m.dst))
	}
	if m.eager {
		copy(m.dst, m.early)
	} else {
		copy(m.dst, m.src)
		sender := &w.processes[m.from]
		sender.pending--
		w.settle(sender)
	}
	receiver := &w.processes[m.to]
	receiver.pending--
	w.settle(receiver)
	return nil
}

func (w *world) settle(p *process) {
	if p.pending == 0 {
		w.ready = append(w.ready, event{start: p.rank})
	}
}

func (w *world) local(p *process, s Step) error {
	src, dst := s.Src, s.Dst
	switch s.Kind {
	case Copy:
		copy(p.bytes(dst), p.bytes(src))
	case ReduceLeft, ReduceRight:
		n := w.op.elemSize
		from, to := p.bytes(src), p.bytes(dst)
		for i := 0; i < len(to); i += n {
			if s.Kind == ReduceLeft {
				w.op.combine(to[i:i+n], from[i:i+n], to[i:i+n])
			} else {
				w.op.combine(to[i:i+n], to[i:i+n], from[i:i+n])
			}
		}
		if src.Buf == Scratch {
			w.spoil(from)
		}
	case Combine:
		n := w.op.elemSize
		from, to := p.bytes(src), p.bytes(dst)
		copy(to, from)
		for at := len(to); at < len(from); at += n {
			i := at % len(to)
			w.op.combine(to[i:i+n], to[i:i+n], from[at:at+n])
		}
		w.spoil(from)
	case Pull:
		peer := &w.processes[s.Peer]
		if src.Buf == Scratch || peer.schedule.Exposed>>src.Buf&1 == 0 ||
			src.Off+src.Len > len(peer.memory[src.Buf]) {
			return fmt.Errorf("rank %d: %v: rank %d has not exposed that", p.rank, s, s.Peer)
		}
		copy(p.bytes(dst), peer.exposed[src.Buf][src.Off:][:src.Len])
	case Push:
		peer := &w.processes[s.Peer]
		if dst.Buf != Output || peer.schedule.Exposed&peer.schedule.Written>>dst.Buf&1 == 0 ||
			dst.Off+dst.Len > len(peer.memory[dst.Buf]) {
			return fmt.Errorf("rank %d: %v: rank %d does not expose that to be written", p.rank, s, s.Peer)
		}
		copy(peer.memory[dst.Buf][dst.Off:][:dst.Len], p.bytes(src))
	case Publish:
		copy(p.exposed[src.Buf][src.Off:], p.bytes(src))
	}
	return nil
}
