package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/uncached"
	"github.com/weft-mpi/weft/transport"
)

// gathered is a message whose bytes come from a view.
type gathered struct {
	from   transport.View // nil for any other message
	stage  transport.MR   // nil until it has a chunk
	writes int            // posted
}

// gather prepares a Write of the next bytes of a message, at most most, to of.remote, and returns how many it
// covers. If whole is set and the granted memory is mapped, it fills the memory directly, and the Write has
// no bytes, only its immediate. Otherwise it gathers a chunk into the stage; 0 means that the stage is still
// in use.
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
			return 0, fmt.Errorf("staging memory for a message: %w", err)
		}
	}
	// Chunks alternate in the stage, and Writes complete in order, so nothing reads the old bytes any more. A
	// receiver that still reads them, in a message that was gathered before, finds the same bytes.
	n = min(most, StagePiece)
	of.remote[0].Length = n
	of.local[0] = transport.SGE{MR: g.stage, Offset: g.writes % stagePieces * StagePiece, Length: int(n)}
	g.from.Gather(at, g.stage.Bytes()[of.local[0].Offset:][:n])
	return n, nil
}

// fill gathers the bytes of a view from a position on directly into the granted memory, if that is mapped
// here.
func (s *Sender) fill(of *channelSends, from transport.View, at int) bool {
	if s.shared.enabled && s.scratch == nil {
		s.scratch = make([]byte, scratchSize)
	}
	f := &of.filler
	f.scratch, f.from, f.at = s.scratch, from, at
	filled := of.c.QP().Fill(&of.remote[0], f) == nil
	f.from = nil
	return filled
}

// scratchSize is how much a filler gathers at a time: it stays in the first-level cache until it has been
// copied.
const scratchSize = 4 << 10

// filler fills memory with the bytes of a message from a position on.
type filler struct {
	from transport.View
	at   int
	// private memory to gather into first; nil to gather directly. Gathering writes a few bytes at a time,
	// and would fetch every line from the cache of the core that has read the last message there.
	scratch []byte
}

func (f *filler) Fill(mem []byte) {
	if f.scratch == nil {
		f.from.Gather(f.at, mem)
		return
	}
	for len(mem) > 0 {
		b := f.scratch[:min(len(f.scratch), len(mem))]
		f.from.Gather(f.at, b)
		uncached.Copy(mem, b)
		f.at, mem = f.at+len(b), mem[len(b):]
	}
	uncached.Fence()
}
