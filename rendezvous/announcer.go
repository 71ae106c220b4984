// Package rendezvous is the protocol of large messages. The sender registers its buffer and announces it (RTS) through the
// channel's ring, in order with all other messages. The receiver, once matched, reads the bytes straight into the user's buffer with
// RDMA Reads, in pieces of which several are under way, or copies them at once where it reaches the sender's memory by itself, and tells the
// sender with FIN that its buffer is free. An element of a vector is
// announced in the same way, by a PIECE between the other pieces of its message.
//
// Where there are no Reads the receiver grants its buffer instead (CTS), and the sender writes the bytes straight into it; it knows by
// itself when its buffer is free, and tells the receiver with the immediate of the last Write.
//
// FIN is a Write with immediate of no bytes: a delivered completion, that needs no slot and no credit (docs/adr/0005).
package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// MaxAnnounced is how many announcements of one channel may be open at once. Each of them keeps a Recv without memory posted, for its FIN.
const MaxAnnounced = 16000

// Announcer is the sender's side, one for a rank.
type Announcer struct {
	pd    transport.PD
	piece uint64
	depth int
	table []announcement
	free  uint32 // index of the first free entry, plus one
	busy  int    // entries in use
	open  map[*channel.Channel]*outstanding
	room  transport.RecvWR // for a FIN: no bytes
}

// AnnouncerConfig says how messages are written whose receivers grant that. A zero field stands for its default.
type AnnouncerConfig struct {
	Piece int // bytes of one Write; 1 MiB
	Depth int // Writes of one channel under way at once; 8
}

// outstanding is what one channel has announced.
type outstanding struct {
	open  int // announcements
	spare int // Recvs that were posted for announcements that did not come about, or ended without FIN
	writes
}

// announcement is a message, or a piece of one, whose bytes wait to be read.
type announcement struct {
	generation uint32 // steps with every use, so that a FIN of an earlier one does not match
	next       uint32 // free entries: index plus one
	c          *channel.Channel
	of         *outstanding
	mr         transport.MR // nil for a message of no bytes
	token      uint64
	granted    uint64 // bytes for which the receiver has granted room
	posted     uint64 // of these, asked to be written
	inFlight   int    // Writes
	last       bool   // no more will be granted
}

// NewAnnouncer makes the sender's side of a rank whose channels use pd.
func NewAnnouncer(pd transport.PD, c AnnouncerConfig) *Announcer {
	piece, depth := orDefault(c.Piece, pieceBytes), orDefault(c.Depth, pieceDepth)
	return &Announcer{pd: pd, piece: uint64(piece), depth: depth, open: map[*channel.Channel]*outstanding{}}
}

// Announce announces buf, which may be empty, as a whole message. When it returns true, buf must stay as it is until Finished, Completed
// or Fail gives token back. False means that there is no room now: credits, the send queue, or announcements of this channel.
func (a *Announcer) Announce(c *channel.Channel, env eager.Envelope, buf []byte, token uint64, more bool) (bool, error) {
	return a.announce(c, buf, token, rtsLen, func(body []byte, s Source) error {
		RTS{Context: env.Context, Tag: env.Tag, Source: s}.Append(body[:0])
		return c.Commit(channel.RTS, more)
	})
}

// AnnouncePiece is Announce of the next bytes of a message that has begun.
func (a *Announcer) AnnouncePiece(c *channel.Channel, buf []byte, token uint64, more bool) (bool, error) {
	return a.announce(c, buf, token, sourceLen, func(body []byte, s Source) error {
		s.Append(body[:0])
		return c.Commit(channel.Piece, more)
	})
}

func (a *Announcer) announce(c *channel.Channel, buf []byte, token uint64, n int, send func([]byte, Source) error) (bool, error) {
	of := a.open[c]
	if of == nil {
		of = &outstanding{}
		of.write.Local, of.write.Remote, of.write.Flags = of.local[:], of.remote[:], transport.FlagSignaled
		a.open[c] = of
	}
	if of.open >= MaxAnnounced {
		return false, nil
	}
	body := c.ReserveControl(n)
	if body == nil {
		return false, nil
	}
	if of.spare == 0 {
		if err := c.QP().PostRecv(&a.room); err != nil {
			return false, fmt.Errorf("room for FIN: %w", err)
		}
		of.spare++
	}
	var mr transport.MR
	s := Source{Length: uint64(len(buf))}
	if len(buf) > 0 {
		var err error
		if mr, err = a.pd.Register(buf, transport.RemoteRead); err != nil {
			return false, fmt.Errorf("send buffer of %d bytes: %w", len(buf), err)
		}
		s.Key = mr.Key()
	}
	i := a.take()
	e := &a.table[i]
	s.ID = uint64(e.generation)<<32 | uint64(i)
	if err := send(body, s); err != nil {
		a.put(i)
		if mr != nil {
			if err := mr.Deregister(); err != nil {
				return false, err
			}
		}
		if errors.Is(err, transport.ErrQueueFull) {
			err = nil
		}
		return false, err
	}
	e.c, e.of, e.mr, e.token = c, of, mr, token
	of.open++
	of.spare--
	return true, nil
}

// Outstanding is the number of announcements of a channel that are not finished.
func (a *Announcer) Outstanding(c *channel.Channel) int {
	if of := a.open[c]; of != nil {
		return of.open
	}
	return 0
}

// Finished takes a delivered FIN of a channel: the buffer is the sender's again, whose token it returns. An immediate that names no open
// announcement of that channel is an error of the peer.
func (a *Announcer) Finished(c *channel.Channel, imm uint64) (token uint64, err error) {
	id := parseFIN(imm).id
	i, ok := a.find(c, id)
	if !ok || a.table[i].granted > 0 {
		return 0, fmt.Errorf("%w: FIN %#x names no open announcement", transport.ErrProtocol, imm)
	}
	return a.finish(i)
}

// find gives the index of an open announcement of a channel.
func (a *Announcer) find(c *channel.Channel, id uint64) (i uint32, ok bool) {
	i = uint32(id)
	return i, uint64(i) < uint64(len(a.table)) && a.table[i].c == c && uint64(a.table[i].generation) == id>>32
}

func (a *Announcer) finish(i uint32) (uint64, error) {
	e := &a.table[i]
	token, mr := e.token, e.mr
	e.of.open--
	a.put(i)
	if mr == nil {
		return token, nil
	}
	return token, mr.Deregister()
}

// Fail ends all announcements of a channel whose queue pair is cut, and gives their tokens to each.
func (a *Announcer) Fail(c *channel.Channel, each func(token uint64)) error {
	var first error
	for i := range a.table {
		if a.table[i].c == c {
			token, err := a.finish(uint32(i))
			if err != nil && first == nil {
				first = err
			}
			each(token)
		}
	}
	delete(a.open, c)
	return first
}

func (a *Announcer) take() uint32 {
	a.busy++
	if a.free == 0 {
		a.table = append(a.table, announcement{})
		return uint32(len(a.table) - 1)
	}
	i := a.free - 1
	a.free = a.table[i].next
	return i
}

func (a *Announcer) put(i uint32) {
	a.busy--
	e := &a.table[i]
	*e = announcement{generation: (e.generation + 1) & (idBits >> 32), next: a.free}
	a.free = i + 1
}
