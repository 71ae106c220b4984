package engine

import (
	"math/bits"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/mpi/internal/match"
	"github.com/weft-mpi/weft/rendezvous"
)

type envelope = eager.Envelope

// arrival is a message that came before its receive was posted: its bytes, or where they can be had, in the order of the message.
type arrival struct {
	match  match.Message[*arrival]
	bytes  int
	parts  []part
	coming bool     // not all of it has come yet
	peer   *peer    // where it came from
	self   *request // a send of this rank to itself that waits for its receive
	number uint64   // of the announcement of all of it, among those of peer; 0 when it came otherwise
	at     int      // in Engine.matched, plus one: held by a Message; 0 when not there
	gen    uint32   // steps with every use, so that a Message of an earlier one finds nothing
	gone   bool     // its sender took it back while a Message held it
	next   *arrival
}

// part is a stretch of an arrival.
type part struct {
	payload   []byte // a copy, from the pool
	source    rendezvous.Source
	announced bool // the bytes are at the source
}

// kept tells whether all of the message is here.
func (a *arrival) kept() bool {
	for i := range a.parts {
		if a.parts[i].announced {
			return false
		}
	}
	return !a.coming
}

// arrivalPool keeps arrivals and their payload buffers, by powers of two of size.
type arrivalPool struct {
	free    *arrival
	buffers [maxClass + 1][][]byte
}

const (
	minClass = 6  // 64 bytes
	maxClass = 18 // beyond that a buffer is left to the garbage collector
)

func class(n int) int { return max(minClass, bits.Len(uint(n-1))) }

func (p *arrivalPool) get() *arrival {
	a := p.free
	if a == nil {
		a = &arrival{}
		a.match.Value = a
		return a
	}
	p.free, a.next = a.next, nil
	return a
}

// copyOf copies b, which is not empty.
func (p *arrivalPool) copyOf(b []byte) []byte {
	c := class(len(b))
	if c > maxClass {
		return append([]byte(nil), b...)
	}
	var buf []byte
	if n := len(p.buffers[c]); n > 0 {
		buf = p.buffers[c][n-1]
		p.buffers[c] = p.buffers[c][:n-1]
	} else {
		buf = make([]byte, 1<<c)
	}
	return buf[:copy(buf[:len(b)], b)]
}

func (p *arrivalPool) put(a *arrival) {
	for i := range a.parts {
		if n := cap(a.parts[i].payload); n > 0 {
			if c := bits.Len(uint(n - 1)); n == 1<<c && c >= minClass && c <= maxClass {
				p.buffers[c] = append(p.buffers[c], a.parts[i].payload[:0])
			}
		}
		a.parts[i] = part{}
	}
	a.parts, a.coming, a.peer, a.self = a.parts[:0], false, nil, nil
	a.number, a.gone = 0, false
	a.gen++
	a.next, p.free = p.free, a
}

// keep copies bytes of a message that no receive has matched. The memory for such bytes is bounded: beyond the bound the peer is told
// to announce payload and to keep it. Envelopes are always taken.
func (e *Engine) keep(a *arrival, b []byte) {
	a.parts = append(a.parts, part{payload: e.arrivals.copyOf(b)})
	e.kept += len(b)
	if p := a.peer; e.kept > e.keepMost && p != nil && !p.holding {
		p.holding = true
		p.ch.Hold(true)
		e.holding = append(e.holding, p)
		e.stats.Holds++
	}
}

// file keeps an arrival until a receive matches it. A probe that waits looks again.
func (e *Engine) file(a *arrival, env envelope, source int) {
	e.stats.Unexpected++
	a.match.Context, a.match.Source, a.match.Tag = env.Context, int32(source), env.Tag
	e.table.File(&a.match)
	e.waiting.wakeAny()
}

// discard gives an arrival back that has been taken.
func (e *Engine) discard(a *arrival) {
	for i := range a.parts {
		e.kept -= len(a.parts[i].payload)
	}
	e.arrivals.put(a)
	if len(e.holding) > 0 && e.kept <= e.keepMost/2 {
		for _, p := range e.holding {
			p.holding = false
			p.ch.Hold(false)
		}
		e.holding = e.holding[:0]
	}
}
