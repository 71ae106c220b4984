package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// MaxOpenGrants is the maximum number of open grants of a channel in one direction. Each of them keeps a
// receive request without memory posted, for its end.
const MaxOpenGrants = 64

// channelWrites is what one channel writes into granted memory.
type channelWrites struct {
	grants    []grant // with Writes to post, in the order of their CTSs
	inFlight  int     // Writes
	queueFull bool    // the send queue had no room for the next one
	held      bool    // Writes were posted that may share a write of the provider with others

	write  transport.SendWR
	local  [1]transport.SGE
	remote [1]transport.Segment
	filler filler
}

// written is the progress of a message in the memory that its receiver has granted.
type written struct {
	granted  uint64 // bytes granted by the receiver
	asked    uint64 // of these, posted
	inFlight int    // Writes
	last     bool   // no further grant will follow
}

// grant is a granted part of the receiver's buffer.
type grant struct {
	CTS
	posted uint64 // bytes posted
}

func (e *pendingSend) wrID(i uint32) uint64 {
	return WriteOwner<<56 | uint64(e.generation&generationMask)<<32 | uint64(i)
}

// OnCTS handles a CTS of a channel: it writes the next bytes of the announced message into the granted
// memory. A CTS that names no open announcement, or grants more than its bytes, is an error of the peer.
func (s *Sender) OnCTS(c *channel.Channel, cts CTS) error {
	i, ok := s.find(c, cts.ID)
	if !ok {
		return fmt.Errorf("%w: CTS for %#x, which is not an open announcement", transport.ErrProtocol, cts.ID)
	}
	e := &s.table[i]
	w := &e.written
	left := e.length - w.granted
	switch {
	case w.last || cts.Length > left || cts.Length == left && !cts.Last:
		return fmt.Errorf("%w: CTS for %d bytes of announcement %#x (last: %v), where %d are left (last: %v)",
			transport.ErrProtocol, cts.Length, cts.ID, cts.Last, left, w.last)
	case len(e.channel.grants) >= MaxOpenGrants:
		return fmt.Errorf("%w: more than %d grants at once", transport.ErrProtocol, MaxOpenGrants)
	}
	w.granted += cts.Length
	w.last = cts.Last
	e.channel.grants = append(e.channel.grants, grant{CTS: cts})
	return s.Progress(c)
}

// Progress posts the Writes, and sends the WITHDRAWs, for which there is room. Call it after completions of
// the channel's QP, and when credits have arrived.
func (s *Sender) Progress(c *channel.Channel) (err error) {
	of := s.channels[c]
	if of == nil || c == s.gathering {
		return nil
	}
	err = s.advance(c, of)
	if of.held {
		of.held = false
		c.QP().Flush()
	}
	return err
}

// Gather is Receiver.Gather for this side.
func (s *Sender) Gather(c *channel.Channel) { s.gathering = c }

func (s *Sender) advance(c *channel.Channel, of *channelSends) (err error) {
	of.queueFull = false
	if len(of.withdrawals) > 0 {
		if err := s.sendWithdrawals(c, of); err != nil {
			return err
		}
	}
	for len(of.grants) > 0 {
		g := &of.grants[0]
		i := indexOf(g.ID)
		e := &s.table[i]
		w := &e.written
		n := min(s.piece, g.Length-g.posted)
		if !s.mayWrite(of, n) {
			return nil
		}
		of.remote[0] = transport.Segment{Key: g.Key, Offset: g.Offset + g.posted, Length: n}
		of.write.Local, of.write.Remote = of.local[:], of.remote[:]
		if e.gathered.from == nil {
			of.local[0] = transport.SGE{MR: e.mr, Offset: int(w.asked), Length: int(n)}
		} else if n, err = s.gather(of, e, n, n == g.Length); n == 0 {
			return err // nil until an earlier chunk is written
		}
		of.write.ID, of.write.Op = e.wrID(i), transport.OpWrite
		if g.posted+n == g.Length { // delivered, and with it all that was posted before
			of.write.Op, of.write.Imm = transport.OpWriteImm, grantEnd{uint32(g.Grant)}.imm()
		}
		if of.queueFull, err = post(c.QP(), &of.write); of.queueFull || err != nil {
			return err
		}
		of.held = true
		of.inFlight++
		w.inFlight++
		w.asked += n
		e.gathered.writes++
		if g.posted += n; g.posted == g.Length {
			of.grants = of.grants[:copy(of.grants, of.grants[1:])]
		}
	}
	return nil
}

// mayWrite reports whether a Write of n bytes may be posted beside those in flight: more of them if they are
// short.
func (s *Sender) mayWrite(of *channelSends, n uint64) bool {
	return of.inFlight < s.depth ||
		of.inFlight < MaxOpenGrants && uint64(of.inFlight)*n < uint64(s.depth)*s.piece
}

// Idle reports whether nothing is in progress, on any channel: Progress then has nothing to do.
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
		return 0, false, nil // of a failed announcement
	}
	e := &s.table[i]
	c, of := e.c, e.channel
	of.inFlight--
	w := &e.written
	w.inFlight--
	if done = w.last && w.inFlight == 0 && w.asked == w.granted; done {
		if e.end == endFIN {
			of.spareRecvs++ // no FIN will take it
		}
		if token, err = s.finish(i); err != nil {
			return token, true, err
		}
	}
	return token, done, s.Progress(c)
}
