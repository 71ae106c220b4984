package rendezvous

import (
	"github.com/weft-mpi/weft/transport"
)

// A message whose bytes are not contiguous at its sender is announced without a key: Source.Key is 0. Its
// receiver grants staging memory for one piece after the other, even if it reads other messages. The sender
// gathers each piece into a stage of its own and writes it, or gathers it directly into the granted memory,
// if that is mapped. A message whose bytes are not contiguous at its receiver is moved in the same pieces, by
// Reads or by grants, and scattered from the stage. So neither end stages more than two pieces of a message
// (docs/internals/adr/0051).
//
// If the provider can register views (transport.ViewRegistrar), it does all this: such messages are announced
// with a key, and read like others.
//
// If peers can copy memory immediately by its key, a message that is not longer than a stage is gathered when
// it is announced, if a stage is free, and read from there like a contiguous one.
const (
	StagePiece  = 32 << 10
	stagePieces = 2
)

// keptStages is how many stages a rank keeps when no message uses them.
const keptStages = 4

// stages are the memory through which messages go that are not contiguous.
type stages struct {
	pd     transport.PD
	rights transport.Access
	free   []transport.MR
	made   int // of them, that there are
}

func (s *stages) take() (transport.MR, error) {
	if last := len(s.free) - 1; last >= 0 {
		mr := s.free[last]
		s.free = s.free[:last]
		return mr, nil
	}
	s.made++
	mr, err := s.pd.Alloc(stagePieces*StagePiece, s.rights)
	if err != nil {
		s.made--
	}
	return mr, err
}

// spare is take, and nil where those that are kept are all in use.
func (s *stages) spare() (transport.MR, error) {
	if len(s.free) == 0 && s.made >= keptStages {
		return nil, nil
	}
	return s.take()
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
	return s.drop(mr)
}

// drop gives memory up that may still be touched.
func (s *stages) drop(mr transport.MR) error {
	s.made--
	return mr.Deregister()
}

// stageOffset is where the piece that begins at a position of its message is in a stage.
func stageOffset(at int) int { return at / StagePiece % stagePieces * StagePiece }
