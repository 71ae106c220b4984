package rendezvous

import (
	"github.com/weft-mpi/weft/transport"
)

// A message whose bytes are not contiguous at its sender is announced without a key: Source.Key is 0. Its
// receiver grants its own memory for one piece after the other, whatever it does with other messages. The
// sender gathers each piece into its own memory and writes it. A message that will not be contiguous at its
// receiver is moved in the same pieces, by Reads or by grants, and scattered out of that memory. So neither
// end holds more than two pieces of a message in addition to the user's memory (docs/adr/0051).
const (
	StagePiece  = 32 << 10
	stagePieces = 2
)

// keptStages is how many stages a rank keeps when no message uses them.
const keptStages = 4

// Gatherer provides the bytes of a message, for as long as it is announced.
type Gatherer interface {
	// Gather copies the bytes from position at on to dst. It does not block.
	Gather(at int, dst []byte)
}

// stages are the memory through which messages go that are not contiguous.
type stages struct {
	pd     transport.PD
	rights transport.Access
	free   []transport.MR
}

func (s *stages) take() (transport.MR, error) {
	if last := len(s.free) - 1; last >= 0 {
		mr := s.free[last]
		s.free = s.free[:last]
		return mr, nil
	}
	return s.pd.Alloc(stagePieces*StagePiece, s.rights)
}

// give takes memory back that nothing under way can touch.
func (s *stages) give(mr transport.MR) error {
	if mr == nil {
		return nil
	}
	if len(s.free) < keptStages {
		s.free = append(s.free, mr)
		return nil
	}
	return mr.Deregister()
}

// stageOffset is where the piece that begins at a position of its message is in a stage.
func stageOffset(at int) int { return at / StagePiece % stagePieces * StagePiece }
