// Package coll has the algorithms of the collective operations. An algorithm is a function that builds, for
// one rank, a [Schedule]: which messages the rank sends and receives, and how it combines and copies bytes.
// Call.Build chooses the algorithm. Nothing is sent here; an executor executes the schedule round by round,
// so blocking and non-blocking collectives use the same schedules.
//
// # Execution of a schedule
//
// The steps of a round are in the order Recv, Send, then the others. The executor posts the receives, posts
// the sends, waits until all of them are complete, executes the other steps in order, and goes on with the
// next round. Rounds of different ranks need not correspond; but the n-th Send of one rank to another
// corresponds to the n-th Recv there, with the same length. So one tag serves a whole schedule, if no other
// schedule with the same context and tag is under way.
//
// A Send may complete only when the receiver has posted its Recv, as in a rendezvous: no schedule relies on a
// Send being complete before that.
//
// # Buffers
//
// Input is the caller's and is only read; Output is the caller's and is written; Scratch is Schedule.Scratch
// bytes that the executor provides, aligned for the element type, with any content. Spans that a Reduce names
// start at a multiple of the element size. Where the comment of an operation's algorithms says so, Input may
// be (a part of) Output, for MPI_IN_PLACE.
//
// The stage is the shared staging buffer of a rank: memory of the executor that the other ranks of the host
// have mapped. Bytes that are copied there are read without a system call. Whether a schedule's buffers go
// through it is up to the executor; [Schedule].Stages only asks for that.
//
// All ranks must build a Call with the same fields, except for Rank and for fields that are significant only
// at some ranks; otherwise the schedules do not match. Calls must be valid: 0 <= Rank < Size, 0 <= Root <
// Size, and no negative count; sums of counts must fit an int.
package coll

import "slices"

// Buffer says which memory a span is in.
type Buffer uint8

const (
	Input   Buffer = iota // the caller's, read only
	Output                // the caller's, written
	Scratch               // the executor's, Schedule.Scratch bytes
)

// Span is a piece of a buffer, in bytes.
type Span struct {
	Buf      Buffer
	Off, Len int
}

// Kind says what a step does.
type Kind uint8

const (
	Send Kind = iota // Src goes to Peer
	Recv             // a message of exactly Dst.Len bytes from Peer goes to Dst
	Copy             // Dst = Src; the two are the same memory or do not overlap

	// The reductions combine element by element with the operator op, and differ in the order of its
	// operands. The contents of Src are undefined afterwards: an operator that can only overwrite its other
	// operand may do so, and copy. With Call.OwnRight the Src of a ReduceRight may be in Input, and stays.

	ReduceLeft  // Dst = op(Src, Dst): Src comes from lower ranks
	ReduceRight // Dst = op(Dst, Src): Src comes from higher ranks

	// Pull reads the memory of another rank directly (a single copy): Dst = Src, which is in Input or Output
	// of Peer. Messages ensure that the bytes are ready before it and stay until it is done.
	Pull

	// Push writes Src to Dst, which is in a buffer of Schedule.Written of Peer. Other messages tell the two
	// when the memory may be written, and that it has been.
	Push

	// Publish makes Src, of a buffer in Schedule.Late, ready for others to Pull after a message of a later
	// round.
	Publish

	// Combine sets Dst to the combination of all vectors in Src, which are consecutive, each as long as Dst,
	// in rank order. The contents of Src are undefined afterwards.
	Combine
)

// Step is one step of a schedule. Peer is set in Send, Recv, Pull and Push; Src in all but Recv, Dst in all
// but Send and Publish. If both are set they have the same length, except in Combine.
type Step struct {
	Kind     Kind
	Peer     int
	Src, Dst Span
}

// Schedule is the sequence of steps of one rank in a collective operation. The zero Schedule is empty. It can
// be reused: Call.Build resets it first, and keeps its memory.
type Schedule struct {
	Scratch int // bytes of scratch memory that the steps use
	// its messages go through the ranks' mailboxes: shared memory for short messages. All ranks have the same
	// number of rounds, and a message is sent and received in the same round
	Mailboxes bool
	Pulls     bool  // some rank's schedule has a Pull or a Push; all messages are empty then
	Exposed   uint8 // the buffers from which others pull, or to which they push, a bit for each
	Written   uint8 // those of them to which others push
	Late      uint8 // those of them whose spans others may read only after a Publish
	// the exposed buffers, to none of which others write, should be copied to the stage
	Stages bool

	steps []Step
	ends  []int // the end of each round in steps
}

// Reset empties the schedule and keeps its memory.
func (s *Schedule) Reset() {
	s.Scratch, s.Mailboxes, s.Pulls, s.Stages = 0, false, false, false
	s.Exposed, s.Written, s.Late = 0, 0, 0
	s.steps, s.ends = s.steps[:0], s.ends[:0]
}

// Rounds returns the number of rounds.
func (s *Schedule) Rounds() int {
	return len(s.ends)
}

// Round returns the steps of a round, which the schedule owns.
func (s *Schedule) Round(i int) []Step {
	first := 0
	if i > 0 {
		first = s.ends[i-1]
	}
	return s.steps[first:s.ends[i]]
}

// Messages returns the number of messages among the steps of a round, which precede the others.
func Messages(steps []Step) int {
	for i := range steps {
		if steps[i].Kind > Recv {
			return i
		}
	}
	return len(steps)
}

// begin returns the start of the current round in steps.
func (s *Schedule) begin() int {
	if n := len(s.ends); n > 0 {
		return s.ends[n-1]
	}
	return 0
}

// round ends the current round, unless it is empty.
func (s *Schedule) round() {
	if len(s.steps) > s.begin() {
		s.ends = append(s.ends, len(s.steps))
	}
}

// mirror reverses the schedule: sends become receives and receives sends, copies go the other way, Input and
// Output are exchanged, and the last round comes first. Steps keep their order within a round. A round must
// receive or send, not both, and nothing may be reduced.
func (s *Schedule) mirror() {
	all, last := len(s.steps), len(s.ends)-1
	slices.Reverse(s.steps)
	slices.Reverse(s.ends)
	for i := range s.ends {
		if i < last {
			s.ends[i] = all - s.ends[i+1]
		} else {
			s.ends[i] = all
		}
		slices.Reverse(s.Round(i))
	}
	for i := range s.steps {
		step := &s.steps[i]
		switch step.Kind {
		case Send:
			step.Kind = Recv
		case Recv:
			step.Kind = Send
		}
		step.Src, step.Dst = step.Dst.mirror(), step.Src.mirror()
	}
}

// scratch reserves scratch memory.
func (s *Schedule) scratch(bytes int) Span {
	at := s.Scratch
	s.Scratch += bytes
	return Span{Scratch, at, bytes}
}

// An empty span is a message too, so that ranks that pass different lengths, one of them 0, find the
// difference. Only algorithms in which both ends of a message know from their own arguments that it is empty
// may omit it.

func (s *Schedule) recv(peer int, dst Span) {
	s.steps = append(s.steps, Step{Kind: Recv, Peer: peer, Dst: dst})
}

func (s *Schedule) send(peer int, src Span) {
	s.steps = append(s.steps, Step{Kind: Send, Peer: peer, Src: src})
}

// copy appends a Copy, merged with the previous one if contiguous.
func (s *Schedule) copy(dst, src Span) {
	if dst.Len == 0 || dst == src {
		return
	}
	if last := len(s.steps) - 1; last >= s.begin() {
		if l := &s.steps[last]; l.Kind == Copy && l.Dst.precedes(dst) && l.Src.precedes(src) {
			l.Dst.Len += dst.Len
			l.Src.Len += src.Len
			return
		}
	}
	s.steps = append(s.steps, Step{Kind: Copy, Src: src, Dst: dst})
}

// reduce combines src into dst. src is the left operand if it comes from lower ranks.
func (s *Schedule) reduce(dst, src Span, left bool) {
	if dst.Len == 0 {
		return
	}
	kind := ReduceRight
	if left {
		kind = ReduceLeft
	}
	s.steps = append(s.steps, Step{Kind: kind, Src: src, Dst: dst})
}

// redirect makes the steps from index first on use a span instead of the beginning of a buffer.
func (s *Schedule) redirect(first int, from Buffer, to Span) {
	move := func(p *Span) {
		if p.Len > 0 && p.Buf == from {
			p.Buf, p.Off = to.Buf, to.Off+p.Off
		}
	}
	for i := range s.steps[first:] {
		step := &s.steps[first+i]
		move(&step.Src)
		move(&step.Dst)
	}
}

// precedes reports whether q begins where p ends.
func (p Span) precedes(q Span) bool {
	return p.Buf == q.Buf && p.Off+p.Len == q.Off
}

// mirror returns the same span in the caller's other buffer.
func (p Span) mirror() Span {
	switch {
	case p.Len == 0:
		return Span{}
	case p.Buf == Input:
		p.Buf = Output
	case p.Buf == Output:
		p.Buf = Input
	}
	return p
}

// part returns the bytes of the span from from up to to.
func (p Span) part(from, to int) Span {
	return Span{p.Buf, p.Off + from, to - from}
}
