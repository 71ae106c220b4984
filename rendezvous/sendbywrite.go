package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/uncached"
	"github.com/weft-mpi/weft/transport"
)

// MaxOpenGrants is how many grants of one channel may be open in one direction. Each of them keeps a receive
// request without memory posted, for its end.
const MaxOpenGrants = 64

// channelWrites is what one channel has to write.
type channelWrites struct {
	grants    []grant // not all of whose Writes are posted, in the order of their CTSs
	inFlight  int     // Writes
	queueFull bool    // the send queue had no room for the next one

	write  transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	filler filler
}

// grant is a part of the receiver's buffer that is being filled.
type grant struct {
	CTS
	posted uint64 // bytes asked to be written
}

func (e *pendingSend) wrID(i uint32) uint64 {
	return WriteOwner<<56 | uint64(e.generation&generationMask)<<32 | uint64(i)
}

// OnCTS handles a CTS of a channel: the next bytes of the announced message are written where it says. A CTS
// that names no open announcement, or grants more than its bytes, is an error of the peer.
func (s *Sender) OnCTS(c *channel.Channel, cts CTS) error {
	i, ok := s.find(c, cts.ID)
	if !ok {
		return fmt.Errorf("%w: CTS for %#x, which is no open announcement", transport.ErrProtocol, cts.ID)
	}
	e := &s.table[i]
	left := e.length - e.granted
	switch {
	case e.last || cts.Length > left || cts.Length == left && !cts.Last:
		return fmt.Errorf("%w: CTS for %d bytes of announcement %#x (last: %v), where %d are left (last: %v)",
			transport.ErrProtocol,
			cts.Length, cts.ID, cts.Last, left, e.last)
	case len(e.channel.grants) >= MaxOpenGrants:
		return fmt.Errorf("%w: more than %d grants at once", transport.ErrProtocol, MaxOpenGrants)
	}
	e.granted += cts.Length
	e.last = cts.Last
	e.channel.grants = append(e.channel.grants, grant{CTS: cts})
	return s.Progress(c)
}

// Progress posts the Writes, and sends the WITHDRAWs, for which there is room. Call it after completions of
// the channel's QP, and when credits have arrived.
func (s *Sender) Progress(c *channel.Channel) (err error) {
	of := s.channels[c]
	if of == nil {
		return nil
	}
	of.queueFull = false
	if len(of.withdrawals) > 0 {
		if err := s.sendWithdrawals(c, of); err != nil {
			return err
		}
	}
	for len(of.grants) > 0 && of.inFlight < s.depth {
		g := &of.grants[0]
		i := indexOf(g.ID)
		e := &s.table[i]
		n := min(s.piece, g.Length-g.posted)
		of.remote[0] = transport.Segment{Key: g.Key, Offset: g.Offset + g.posted, Length: n}
		of.local[0] = transport.SGE{MR: e.mr, Offset: int(e.posted), Length: int(n)}
		of.write.Local, of.write.Remote = of.local[:], of.remote[:]
		switch {
		case e.from == nil:
		case n == g.Length && s.fill(c.QP(), of, e): // and a Write of no bytes tells of it
			of.write.Local, of.write.Remote = nil, nil
		default:
			if e.inFlight == stagePieces {
				return nil // until a piece is written
			}
			n = min(n, StagePiece)
			if of.local[0], err = s.gather(e, int(n)); err != nil {
				return err
			}
			of.remote[0].Length = n
		}
		of.write.ID, of.write.Op = e.wrID(i), transport.OpWrite
		if g.posted+n == g.Length { // delivered, and with it all that was posted before
			of.write.Op, of.write.Imm = transport.OpWriteImm, grantEnd{uint32(g.Grant)}.imm()
		}
		if of.queueFull, err = post(c.QP(), &of.write); of.queueFull || err != nil {
			return err
		}
		of.inFlight++
		e.inFlight++
		e.pieces++
		e.posted += n
		if g.posted += n; g.posted == g.Length {
			of.grants = of.grants[:copy(of.grants, of.grants[1:])]
		}
	}
	return nil
}

// fill gathers what is next of a message straight into the granted memory, where that is mapped here.
func (s *Sender) fill(qp transport.QP, w *channelSends, e *pendingSend) bool {
	if s.shared.enabled && s.through == nil {
		s.through = make([]byte, throughSize)
	}
	w.filler.through = s.through
	w.filler.from, w.filler.at = e.from, int(e.posted)
	filled := qp.Fill(&w.remote[0], &w.filler) == nil
	w.filler.from = nil
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

// gather copies the next n bytes of a message to its stage. Pieces take turns there, and Writes complete in
// order, so that nothing reads the place any more. Of a message that is there already the bytes are the same.
func (s *Sender) gather(e *pendingSend, n int) (at transport.SGE, err error) {
	if e.stage == nil {
		if e.stage, err = s.stages.take(); err != nil {
			return at, fmt.Errorf("memory to gather a message in: %w", err)
		}
	}
	at = transport.SGE{MR: e.stage, Offset: e.pieces % stagePieces * StagePiece, Length: n}
	e.from.Gather(int(e.posted), e.stage.Bytes()[at.Offset:][:n])
	return at, nil
}

// Idle reports whether nothing is under way, on any channel: Progress then has nothing to do.
func (s *Sender) Idle() bool { return s.inUse == 0 }

// SendQueueFull reports whether Progress has found the send queue full. Call Progress again after completions
// have been polled.
func (s *Sender) SendQueueFull(c *channel.Channel) bool {
	of := s.channels[c]
	return of != nil && of.queueFull
}

// OnCompletion handles the completion of a Write. When it is the last one of a message, the buffer belongs to
// the sender again, and done is true for its token. done may be true together with an error, which then comes
// from the memory or from later Writes.
func (s *Sender) OnCompletion(wc *transport.WC) (token uint64, done bool, err error) {
	i := uint32(wc.ID)
	if uint64(i) >= uint64(len(s.table)) || s.table[i].c == nil || s.table[i].wrID(i) != wc.ID {
		return 0, false, nil // of an announcement that was given up
	}
	e := &s.table[i]
	c, of := e.c, e.channel
	of.inFlight--
	e.inFlight--
	if done = e.last && e.inFlight == 0 && e.posted == e.granted; done {
		if e.end == endFIN {
			of.spareRecvs++ // no FIN will take it
		}
		if token, err = s.finish(i); err != nil {
			return token, true, err
		}
	}
	return token, done, s.Progress(c)
}
