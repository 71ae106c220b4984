// Package rendezvous is the protocol of large messages. The sender registers its buffer and announces it (RTS) through the
// channel's ring, in order with all other messages. The receiver, once matched, reads the bytes straight into the user's buffer with
// RDMA Reads, in pieces of which several are under way, and tells the sender with FIN that its buffer is free.
//
// FIN is a Write with immediate of no bytes: a delivered completion, that needs no slot and no credit (docs/adr/0005).
package rendezvous

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// MaxAnnounced is how many announcements of one channel may be open at once. The sender keeps at least so many Recvs without memory
// posted, one for each FIN.
const MaxAnnounced = 64

// Announcer is the sender's side, one for a rank.
type Announcer struct {
	pd    transport.PD
	table []announcement
	free  int32 // index of the first free entry, plus one
	open  map[*channel.Channel]*int

	nothing [1]byte // stands for the memory of a message of no bytes
}

// announcement is a message whose bytes wait to be read.
type announcement struct {
	generation uint16 // steps with every use, so that a FIN of an earlier one does not match
	next       int32  // free entries: index plus one
	c          *channel.Channel
	open       *int // of c
	mr         transport.MR
	token      uint64
}

// maxOpen bounds the announcements of a rank: an index has 16 bits in RTS.ID.
const maxOpen = 1 << 16

// NewAnnouncer makes the sender's side of a rank whose channels use pd.
func NewAnnouncer(pd transport.PD) *Announcer {
	return &Announcer{pd: pd, open: map[*channel.Channel]*int{}}
}

// Announce announces buf. When it returns true, buf must stay as it is until Finished gives token back. False means that there is no
// room now: credits, or announcements of this channel.
func (a *Announcer) Announce(c *channel.Channel, env eager.Envelope, buf []byte, token uint64, more bool) (ok bool, err error) {
	open := a.open[c]
	if open == nil {
		open = new(int)
		a.open[c] = open
	}
	if *open >= MaxAnnounced {
		return false, nil
	}
	body := c.ReserveControl(rtsLen)
	if body == nil {
		return false, nil
	}
	i, ok := a.take()
	if !ok {
		return false, nil
	}
	memory := buf
	if len(memory) == 0 {
		memory = a.nothing[:]
	}
	mr, err := a.pd.Register(memory, transport.RemoteRead)
	if err != nil {
		a.put(i)
		return false, fmt.Errorf("send buffer of %d bytes: %w", len(buf), err)
	}
	e := &a.table[i]
	e.c, e.open, e.mr, e.token = c, open, mr, token
	RTS{
		Context: env.Context, Tag: env.Tag, ID: uint32(i) | uint32(e.generation)<<16, Key: mr.Key(), Length: uint64(len(buf)),
	}.Append(body[:0])
	if err := c.Commit(channel.RTS, more); err != nil {
		e.mr = nil
		a.put(i)
		if derr := mr.Deregister(); derr != nil {
			return false, derr
		}
		if err == transport.ErrQueueFull {
			err = nil
		}
		return false, err
	}
	*open++
	return true, nil
}

// Outstanding is the number of announcements of a channel that are not finished.
func (a *Announcer) Outstanding(c *channel.Channel) int {
	if n := a.open[c]; n != nil {
		return *n
	}
	return 0
}

// Finished takes a delivered FIN of a channel: the buffer is the sender's again, whose token it returns, with what the receiver says of the
// message. An immediate that names no open announcement of that channel is an error of the peer.
func (a *Announcer) Finished(c *channel.Channel, imm uint64) (token uint64, err error) {
	f := parseFIN(imm)
	i := int(f.id & 0xffff)
	if i >= len(a.table) || a.table[i].mr == nil || a.table[i].c != c || a.table[i].generation != uint16(f.id>>16) {
		return 0, fmt.Errorf("%w: FIN %#x names no open announcement", transport.ErrProtocol, imm)
	}
	return a.finish(i)
}

func (a *Announcer) finish(i int) (uint64, error) {
	e := &a.table[i]
	token, mr := e.token, e.mr
	*e.open--
	e.c, e.open, e.mr = nil, nil, nil
	a.put(i)
	return token, mr.Deregister()
}

// Fail ends all announcements of a channel whose queue pair is cut, and gives their tokens to each.
func (a *Announcer) Fail(c *channel.Channel, each func(token uint64)) error {
	var first error
	for i := range a.table {
		if a.table[i].mr != nil && a.table[i].c == c {
			token, err := a.finish(i)
			if err != nil && first == nil {
				first = err
			}
			each(token)
		}
	}
	delete(a.open, c)
	return first
}

func (a *Announcer) take() (int, bool) {
	if a.free == 0 {
		if len(a.table) == maxOpen {
			return 0, false
		}
		a.table = append(a.table, announcement{})
		return len(a.table) - 1, true
	}
	i := int(a.free - 1)
	a.free = a.table[i].next
	return i, true
}

func (a *Announcer) put(i int) {
	e := &a.table[i]
	e.generation++
	e.next, a.free = a.free, int32(i)+1
}
