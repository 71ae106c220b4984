package engine

import (
	"math/bits"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/mpi/internal/match"
	"github.com/weft-mpi/weft/rendezvous"
)

type envelope = eager.Envelope

// arrival is a message that came before its receive was posted: its bytes (eager), or where they can be had.
type arrival struct {
	match   match.Message[*arrival]
	bytes   int
	payload []byte         // eager: a copy, from the pool
	rts     rendezvous.RTS // announced: to be fetched from peer
	peer    *peer          // where rts came from
	self    *request       // a send of this rank to itself that waits for its receive
	number  uint64         // of the announcement, among those of peer
	at      int            // in Engine.matched, plus one: held by a Message; 0 when not there
	gen     uint32         // steps with every use, so that a Message of an earlier one finds nothing
	gone    bool           // its sender took it back while a Message held it
	next    *arrival
}

// arrivalPool keeps arrivals and their payload buffers, by powers of two of size.
type arrivalPool struct {
	free    *arrival
	buffers [maxClass + 1][][]byte
}

const (
	minClass = 6  // 64 bytes
	maxClass = 16 // beyond that a buffer is left to the garbage collector
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

// copyOf keeps a copy of b, which may be empty.
func (p *arrivalPool) copyOf(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
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
	if n := cap(a.payload); n > 0 {
		if c := bits.Len(uint(n - 1)); n == 1<<c && c >= minClass && c <= maxClass {
			p.buffers[c] = append(p.buffers[c], a.payload[:0])
		}
	}
	a.payload, a.peer, a.self = nil, nil, nil
	a.gone = false
	a.gen++
	a.rts = rendezvous.RTS{}
	a.next, p.free = p.free, a
}
