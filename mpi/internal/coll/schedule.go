// Package coll holds the algorithms of the collective operations. Each is a function that writes down, for
// one rank, which messages it sends and receives and what it does with the bytes: a [Schedule]. Nothing is
// sent here; an executor carries the schedule out, round by round, at once or bit by bit, so that blocking
// and non-blocking collectives are the same schedules.
//
// # Carrying out a schedule
//
// A round's steps stand in the order Recv, Send, then the others. The executor posts the receives, posts the
// sends, waits until all of them are complete, carries out the other steps in their order, and goes on with
// the next round. Rounds of different ranks need not correspond; what corresponds is the n-th Send of one
// rank to another and the n-th Recv of that one from the first, and their lengths. So one tag serves a whole
// schedule, if no other schedule that uses the same context and tag is under way.
//
// A Send may be completed by the receiver alone, at any later time, as a rendezvous is: no schedule relies on
// a Send being complete before its Recv is posted.
//
// # Buffers
//
// Input is the caller's and is only read; Output is the caller's and is written; Scratch is Schedule.Scratch
// bytes that the executor provides, aligned for the element type, with any content. Spans that a Reduce names
// start at a multiple of the element size. Where a function says so, Input may be (a part of) Output, for
// MPI_IN_PLACE.
//
// All ranks must call a function with the same arguments, except for rank and for arguments that are
// significant only at some ranks; otherwise the schedules do not match. Arguments must be valid: 0 <= rank <
// size, 0 <= root < size, and no negative count; sums of counts fit an int, as the callers' slices do.
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

	// Dst = Src, which is in Input or Output of Peer. Peer takes no part in the copy: other messages ensure
	// that the bytes are there before it and stay until it is done.
	Pull

	// Src goes to Dst, which is in a buffer of Schedule.Written of Peer. Peer takes no part in that: other
	// messages tell that the memory may be written, and that it has been.
	Push

	// Src, of a buffer in Schedule.Late, is ready for others to Pull once they have had a message of a later
	// round. Dst is Src.
	Publish

	// Dst = op of all vectors in Src, which stand one after another, each as long as Dst, in rank order.
	// The contents of Src are undefined afterwards.
	Combine
)

// Step is one thing to do. Peer is set in Send, Recv, Pull and Push; Src in all but Recv, Dst in all but
// Send. The two have the same length, but in Combine.
type Step struct {
	Kind     Kind
	Peer     int
	Src, Dst Span
}

// Schedule is what one rank does in a collective operation. The zero Schedule is empty. It can be used again
// and again: Call.Build resets it first, and the memory is kept.
type Schedule struct {
	Scratch int // bytes of scratch memory that the steps use
	// its messages are short enough for the mailboxes of the call; it has one round, or it pulls
	Mailboxes bool
	Pulls     bool  // some rank's schedule has a Pull or a Push; no message has bytes then
	Exposed   uint8 // the buffers out of which others pull, or to which they push, a bit for each
	Written   uint8 // those of them to which others push
	Late      uint8 // those of them that others may not read before a Publish has named the span
	// it pays to copy the exposed buffers, none of which others write to, to where they are read without a
	// system call
	Stages bool

	steps []Step
	ends  []int // where each round ends in steps
}

// Reset empties the schedule and keeps its memory.
func (s *Schedule) Reset() {
	s.Scratch, s.Mailboxes, s.Pulls, s.Stages = 0, false, false, false
	s.Exposed, s.Written, s.Late = 0, 0, 0
	s.steps, s.ends = s.steps[:0], s.ends[:0]
}

// Rounds is the number of rounds.
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

// Messages is how many of the steps of a round are messages, which stand before the others.
func Messages(steps []Step) int {
	for i := range steps {
		if steps[i].Kind > Recv {
			return i
		}
	}
	return len(steps)
}

// begin is where the round that is being written began.
func (s *Schedule) begin() int {
	if n := len(s.ends); n > 0 {
		return s.ends[n-1]
	}
	return 0
}

// round ends a round. A round without a step is none.
func (s *Schedule) round() {
	if len(s.steps) > s.begin() {
		s.ends = append(s.ends, len(s.steps))
	}
}

// mirror turns the schedule round: what was sent is received and what was received is sent, copies go the
// other way, Input and Output change places, and the last round comes first. Steps keep their order within a
// round. A round must receive or send, not both, and nothing may be reduced.
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

// scratch reserves so many bytes.
func (s *Schedule) scratch(bytes int) Span {
	at := s.Scratch
	s.Scratch += bytes
	return Span{Scratch, at, bytes}
}

// An empty span is a message too: so ranks that pass different lengths, of which one is 0, find out. Only
// algorithms in which both ends of a message know that it is empty from their own arguments may leave it out.

func (s *Schedule) recv(peer int, dst Span) {
	s.steps = append(s.steps, Step{Kind: Recv, Peer: peer, Dst: dst})
}

func (s *Schedule) send(peer int, src Span) {
	s.steps = append(s.steps, Step{Kind: Send, Peer: peer, Src: src})
}

// copy joins a copy that goes on where the step before it ended to that step.
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

// reduce combines src into dst. It stands left of it if it comes from lower ranks.
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

// redirect has the steps from the first of them on use a span in place of the beginning of a buffer.
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

// mirror is the span in the other buffer of the caller's.
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

// part is the piece of the span from byte from up to byte to.
func (p Span) part(from, to int) Span {
	return Span{p.Buf, p.Off + from, to - from}
}
