package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/uncached"
	"github.com/weft-mpi/weft/transport"
)

// gathered is a message whose bytes a view gives.
type gathered struct {
	from   transport.View // nil for any other message
	stage  transport.MR   // nil until there is a piece in it
	writes int            // posted
}

// gather sets up a Write of the next bytes of a message, most or fewer, to of.remote, and returns how many:
// of a piece in a stage or, if a whole grant could be filled directly, of no bytes, which tells of them. It
// returns 0 until an earlier piece is written.
func (s *Sender) gather(of *channelSends, e *pendingSend, most uint64, whole bool) (n uint64, err error) {
	g, at := &e.gathered, int(e.written.asked)
	if whole && s.fill(of, g.from, at) {
		of.write.Local, of.write.Remote = nil, nil
		return most, nil
	}
	if e.written.inFlight == stagePieces {
		return 0, nil
	}
	if g.stage == nil {
		if g.stage, err = s.stages.take(); err != nil {
			return 0, fmt.Errorf("memory to gather a message in: %w", err)
		}
	}
	// Pieces take turns in the stage, and Writes complete in order, so nothing reads the place any more. Of a
	// message that is there already the bytes are the same.
	n = min(most, StagePiece)
	of.remote[0].Length = n
	of.local[0] = transport.SGE{MR: g.stage, Offset: g.writes % stagePieces * StagePiece, Length: int(n)}
	g.from.Gather(at, g.stage.Bytes()[of.local[0].Offset:][:n])
	return n, nil
}

// fill gathers the bytes of a view from a position on straight into the granted memory, where that is mapped
// here.
func (s *Sender) fill(of *channelSends, from transport.View, at int) bool {
	if s.shared.enabled && s.through == nil {
		s.through = make([]byte, throughSize)
	}
	f := &of.filler
	f.through, f.from, f.at = s.through, from, at
	filled := of.c.QP().Fill(&of.remote[0], f) == nil
	f.from = nil
	return filled
}

// throughSize is how much a filler gathers at a time: it stays in the cache that is nearest to the core until
// it has been copied.
const throughSize = 4 << 10

// filler fills memory with the bytes of a message from a position on.
type filler struct {
	from transport.View
	at   int
	// memory of this rank alone, if the bytes go through that; else nil. To gather writes a few bytes at a
	// time, which takes every line from the cache of the core that has read the last message there.
	through []byte
}

func (f *filler) Fill(mem []byte) {
	if f.through == nil {
		f.from.Gather(f.at, mem)
		return
	}
	for len(mem) > 0 {
		b := f.through[:min(len(f.through), len(mem))]
		f.from.Gather(f.at, b)
		uncached.Copy(mem, b)
		f.at, mem = f.at+len(b), mem[len(b):]
	}
	uncached.Fence()
}
