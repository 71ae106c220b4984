package rendezvous

import (
	"github.com/weft-mpi/weft/transport"
)

// A message whose bytes are not contiguous at its sender is announced without a key: Source.Key is 0. Its
// receiver grants staging memory for one chunk of it after the other, even if it reads other messages. The
// sender gathers each chunk into staging memory of its own (a stage) and writes it, or gathers it directly
// into the granted memory, if that is mapped. A message whose bytes are not contiguous at its receiver is
// moved in the same chunks, by Reads or by grants, and scattered from the stage. So neither end stages more
// than two chunks of a message (docs/internals/adr/0051).
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

// keptStages is the number of free stages that a rank keeps.
const keptStages = 4

// stages is the staging memory of a rank.
type stages struct {
	pd     transport.PD
	rights transport.Access
	free   []transport.MR
	made   int // allocated
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

// spare is take, but returns nil if keptStages are in use.
func (s *stages) spare() (transport.MR, error) {
	if len(s.free) == 0 && s.made >= keptStages {
		return nil, nil
	}
	return s.take()
}

// give returns a stage that nothing in progress can access.
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

// drop frees a stage that may still be accessed.
func (s *stages) drop(mr transport.MR) error {
	s.made--
	return mr.Deregister()
}

// stageOffset returns the offset in a stage of the chunk at a position of its message.
func stageOffset(at int) int { return at / StagePiece % stagePieces * StagePiece }
