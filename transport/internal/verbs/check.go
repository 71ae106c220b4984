package verbs

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Limits are the limits of requests on a queue pair.
type Limits struct {
	SGE, Segments, Inline, Message int

	Offset uint64 // of a remote segment
	Reads  int    // Reads and Atomics outstanding
}

// CheckRecv returns an error for an invalid receive request.
func (p *PD) CheckRecv(wr *transport.RecvWR, l *Limits) error {
	if wr == nil {
		return fmt.Errorf("%w: nil", transport.ErrInvalid)
	}
	if len(wr.Local) > l.SGE {
		return fmt.Errorf("%w: a scatter list of %d elements; at most %d are possible",
			transport.ErrInvalid, len(wr.Local), l.SGE)
	}
	for _, s := range wr.Local {
		if _, err := p.Local(s, transport.LocalWrite); err != nil {
			return err
		}
	}
	return nil
}

// CheckSend returns the length of a request, or an error if it is invalid.
func (p *PD) CheckSend(wr *transport.SendWR, l *Limits) (int, error) {
	if wr == nil {
		return 0, fmt.Errorf("%w: nil", transport.ErrInvalid)
	}
	if wr.Lane != transport.AnyLane && (wr.Op != transport.OpRead || wr.Lane > transport.MaxLane) {
		return 0, fmt.Errorf("%w: operation %d designates lane %d; Reads designate lanes up to %d",
			transport.ErrInvalid, wr.Op, wr.Lane, transport.MaxLane)
	}
	need := transport.Access(0)
	untagged := false
	switch wr.Op {
	case transport.OpWrite, transport.OpWriteImm:
	case transport.OpSend:
		untagged = true
	case transport.OpRead:
		need = transport.LocalWrite
		if l.Reads == 0 {
			return 0, fmt.Errorf("%w: a Read on a queue pair that may have none outstanding",
				transport.ErrInvalid)
		}
	case transport.OpFetchAdd:
		return WordSize, p.checkAtomic(wr, l)
	default:
		return 0, fmt.Errorf("%w: operation %d", transport.ErrInvalid, wr.Op)
	}
	if len(wr.Local) > l.SGE || len(wr.Remote) > l.Segments {
		return 0, fmt.Errorf("%w: %d elements and %d segments; at most %d and %d are possible",
			transport.ErrInvalid, len(wr.Local), len(wr.Remote), l.SGE, l.Segments)
	}
	total, remote, err := p.lengths(wr, need, l)
	if err != nil {
		return 0, err
	}
	switch {
	case total > l.Message:
		return 0, fmt.Errorf("%w: %d bytes", transport.ErrInvalid, total)
	case untagged && len(wr.Remote) > 0:
		return 0, fmt.Errorf("%w: a Send names remote memory", transport.ErrInvalid)
	case wr.Op == transport.OpRead && len(wr.Remote) == 0:
		return 0, fmt.Errorf("%w: a Read names no remote memory", transport.ErrInvalid)
	case !untagged && remote != uint64(total):
		return 0, fmt.Errorf("%w: %d local bytes, %d remote", transport.ErrInvalid, total, remote)
	case wr.Op != transport.OpRead && len(wr.Remote) > 1:
		return 0, fmt.Errorf("%w: a Write to %d segments", transport.ErrInvalid, len(wr.Remote))
	case wr.Flags&transport.FlagInline != 0 && (wr.Op == transport.OpRead || total > l.Inline):
		return 0, fmt.Errorf("%w: %d bytes inline; at most %d, and not for a Read", transport.ErrInvalid,
			total, l.Inline)
	}
	return total, nil
}

// lengths adds up the elements and the segments of a request.
func (p *PD) lengths(wr *transport.SendWR, need transport.Access, l *Limits) (local int, remote uint64,
	err error) {
	views := (wr.Op == transport.OpWrite || wr.Op == transport.OpWriteImm || wr.Op == transport.OpRead) &&
		wr.Flags&transport.FlagInline == 0
	for i := range wr.Local {
		if _, err := p.local(wr.Local[i], need, views); err != nil {
			return 0, 0, err
		}
		local += wr.Local[i].Length
	}
	for i := range wr.Remote {
		s := &wr.Remote[i]
		if s.Length > uint64(l.Message) || s.Offset > l.Offset {
			return 0, 0, fmt.Errorf("%w: a segment of %d bytes at %d", transport.ErrInvalid, s.Length,
				s.Offset)
		}
		remote += s.Length
	}
	return local, remote, nil
}

// checkAtomic returns an error for an invalid Atomic.
func (p *PD) checkAtomic(wr *transport.SendWR, l *Limits) error {
	switch {
	case l.Reads == 0:
		return fmt.Errorf("%w: an Atomic on a queue pair that may have no Read outstanding",
			transport.ErrInvalid)
	case wr.Flags&transport.FlagInline != 0:
		return fmt.Errorf("%w: an Atomic inline", transport.ErrInvalid)
	case len(wr.Local) != 1 || wr.Local[0].Length != WordSize:
		return fmt.Errorf("%w: an Atomic needs one local element of %d bytes for the previous value",
			transport.ErrInvalid, WordSize)
	case len(wr.Remote) != 1 || wr.Remote[0].Length != WordSize || wr.Remote[0].Offset%WordSize != 0:
		return fmt.Errorf("%w: an Atomic needs one remote segment of %d bytes at a multiple of %d",
			transport.ErrInvalid, WordSize, WordSize)
	case wr.Remote[0].Offset > l.Offset:
		return fmt.Errorf("%w: an Atomic at %d", transport.ErrInvalid, wr.Remote[0].Offset)
	}
	_, err := p.Local(wr.Local[0], transport.LocalWrite)
	return err
}

// CheckShape returns an error if a queue is longer than depth, or Reads more than reads.
func CheckShape(conf *transport.QPConfig, depth, reads int) error {
	switch {
	case conf.SendWR < 1 || conf.SendWR > depth || conf.RecvWR < 1 || conf.RecvWR > depth:
		return fmt.Errorf("%w: queues of depth %d and %d; 1 to %d are possible", transport.ErrInvalid,
			conf.SendWR, conf.RecvWR, depth)
	case conf.Reads < 0 || conf.Reads > reads:
		return fmt.Errorf("%w: %d reads at once; at most %d are possible", transport.ErrInvalid, conf.Reads,
			reads)
	}
	return nil
}

// Immediate returns the immediate from its 8 bytes in a frame.
func Immediate(word uint64) (uint32, error) {
	if word>>32 != 0 {
		return 0, fmt.Errorf("%w: an immediate of %#x, which has more than 32 bits", transport.ErrProtocol,
			word)
	}
	return uint32(word), nil
}
