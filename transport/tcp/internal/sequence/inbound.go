package sequence

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// ErrBeyondWindow is the error of a number that a correct sender cannot have used.
var ErrBeyondWindow = errors.New("a number beyond the window")

// Kind says which counter of its run a frame increments (H2).
type Kind uint8

const (
	Data     Kind = iota // bytes without a completion
	Request              // a Read Request or an Atomic, which must be released in order
	Message              // the last frame of a message that consumes a posted Recv
	Response             // the last frame of an answer to a Read or an Atomic of this side
)

// Counts counts what was completed beyond a hole, by kind (H2).
type Counts struct {
	Requests, Messages, Responses int
}

func (c *Counts) add(k Kind) {
	switch k {
	case Request:
		c.Requests++
	case Message:
		c.Messages++
	case Response:
		c.Responses++
	}
}

func (c *Counts) merge(o Counts) {
	c.Requests += o.Requests
	c.Messages += o.Messages
	c.Responses += o.Responses
}

// Run is a range of the sequence that has arrived completely and is not yet delivered.
type Run struct {
	From, To uint64
	Counts
	End   uint8 // what must be carried out exactly after the run; 0: nothing
	since time.Duration
}

// Inbound is the receiving half of a sequence. T is the part of a Write that is held until the rest has
// arrived.
type Inbound[T any] struct {
	// Now reads a clock. It is called when a hole opens or closes.
	Now func() time.Duration

	next  uint64 // the smallest number that has not arrived
	runs  []Run  // arrived and not yet delivered, ascending
	ready int    // how many of runs, from the first on, lie before next: these can be delivered
	tails []tail[T]
	Stats Holes
}

// Holes has the statistics of the holes of a direction.
type Holes struct {
	Open    int // at present
	MaxOpen int // at once
	Closed  uint64
	Longest time.Duration
	Total   time.Duration // of those that are closed
}

type tail[T any] struct {
	first, last uint64
	what        T
}

// NewInbound makes the receiving half of a sequence that begins with 1.
func NewInbound[T any](now func() time.Duration) *Inbound[T] { return &Inbound[T]{Now: now, next: 1} }

// Next returns the smallest number that has not arrived: the value of an acknowledgement.
func (in *Inbound[T]) Next() uint64 { return in.next }

// Fresh reports whether a number has not arrived before. The caller drops other frames before it uses any of
// their keys. A number beyond the window is an error.
func (in *Inbound[T]) Fresh(n uint64) (bool, error) {
	switch {
	case n < in.next:
		return false, nil
	case n-in.next >= frame.Window:
		return false, fmt.Errorf("%w: %d where %d is due", ErrBeyondWindow, n, in.next)
	case n == in.next:
		return true, nil
	}
	i, found := in.find(n)
	return !found && (i == 0 || in.runs[i-1].To < n), nil
}

// find returns the index of the first run that begins at n or after it.
func (in *Inbound[T]) find(n uint64) (int, bool) {
	return slices.BinarySearchFunc(in.runs, n, func(r Run, n uint64) int {
		switch {
		case r.From < n:
			return -1
		case r.From > n:
			return 1
		}
		return 0
	})
}

// Arrived notes that a fresh frame has been placed completely. It is delivered when the holes before it have
// closed. With an end it is the last of its run.
func (in *Inbound[T]) Arrived(n uint64, k Kind, end uint8) {
	i, _ := in.find(n)
	left := i > in.ready && in.runs[i-1].To+1 == n
	right := i < len(in.runs) && in.runs[i].From == n+1
	in.holes(i, left || n == in.next, right)
	joinsLeft := left && in.runs[i-1].End == 0
	joinsRight := right && end == 0
	switch {
	case joinsLeft && joinsRight:
		l, r := &in.runs[i-1], &in.runs[i]
		l.add(k)
		l.merge(r.Counts)
		l.To, l.End = r.To, r.End
		in.runs = slices.Delete(in.runs, i, i+1)
	case joinsLeft:
		l := &in.runs[i-1]
		l.add(k)
		l.To, l.End = n, end
	case joinsRight:
		r := &in.runs[i]
		r.add(k)
		r.From = n
	default:
		r := Run{From: n, To: n, End: end}
		r.add(k)
		if i < len(in.runs) {
			r.since = in.runs[i].since // the hole that it splits is as old on both sides
		} else if n != in.next && !left {
			r.since = in.Now()
		}
		in.runs = slices.Insert(in.runs, i, r)
	}
	if n == in.next {
		for in.ready < len(in.runs) && in.runs[in.ready].From <= in.next {
			in.next = in.runs[in.ready].To + 1
			in.ready++
		}
	}
}

// holes updates the statistics when a number arrives that lies before the i-th run. Each hole ends at a run,
// so there is one for each run that does not follow another one directly. closed says whether the preceding
// number has arrived, right whether the following one has.
func (in *Inbound[T]) holes(i int, closed, right bool) {
	s := &in.Stats
	switch {
	case i == len(in.runs) && !closed, i < len(in.runs) && !closed && !right:
		s.Open++
		s.MaxOpen = max(s.MaxOpen, s.Open)
	case i < len(in.runs) && closed && right:
		s.Open--
		s.Closed++
		d := in.Now() - in.runs[i].since
		s.Longest = max(s.Longest, d)
		s.Total += d
	}
}

// Deliver removes and returns the next run to deliver, in order (H3).
func (in *Inbound[T]) Deliver() (Run, bool) {
	if in.ready == 0 {
		return Run{}, false
	}
	r := in.runs[0]
	in.runs = in.runs[:copy(in.runs, in.runs[1:])]
	in.ready--
	return r, true
}

// Whole reports whether all numbers from from up to, but without, to have arrived.
func (in *Inbound[T]) Whole(from, to uint64) bool {
	from = max(from, in.next)
	for i, _ := in.find(from + 1); from < to; i++ {
		if i == 0 || in.runs[i-1].To < from {
			return false
		}
		from = in.runs[i-1].To + 1
		if from < to && (i == len(in.runs) || in.runs[i].From != from) {
			return false
		}
	}
	return true
}

// Hold keeps the part of a Write that must be placed last. The Write has the numbers from first to last.
func (in *Inbound[T]) Hold(first, last uint64, what T) {
	in.tails = append(in.tails, tail[T]{first, last, what})
}

// Holds returns how many are held.
func (in *Inbound[T]) Holds() int { return len(in.tails) }

// Release removes and returns a held part whose Write has arrived completely, except for the part itself.
func (in *Inbound[T]) Release() (what T, last uint64, ok bool) {
	for i := range in.tails {
		if t := in.tails[i]; in.Whole(t.first, t.last) {
			in.tails = slices.Delete(in.tails, i, i+1)
			return t.what, t.last, true
		}
	}
	return what, 0, false
}

// Ranges returns the ranges that have arrived beyond the first hole.
func (in *Inbound[T]) Ranges() (to []frame.Range) {
	for _, r := range in.runs[in.ready:] {
		if k := len(to); k > 0 && to[k-1].To+1 == r.From {
			to[k-1].To = r.To
		} else {
			to = append(to, frame.Range{From: r.From, To: r.To})
		}
	}
	return to
}
