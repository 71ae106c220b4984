package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// id names the transfer in its grants.
func (t *transfer) id() uint64 { return (uint64(t.generation)<<32 | uint64(t.index)) & idBits }

// grant sends the CTS for the next part of a message; false when there is no room for it.
func (f *Fetcher) grant(c *channel.Channel, l *line, t *transfer) (bool, error) {
	body := c.ReserveControl(ctsLen)
	if body == nil {
		return false, nil
	}
	if l.spare == 0 {
		if err := c.QP().PostRecv(&f.room); err != nil {
			return false, fmt.Errorf("room for the end of a grant: %w", err)
		}
		l.spare++
	}
	mr := t.into[t.first].mr
	n := len(mr.Bytes())
	CTS{
		ID: t.source.ID, Grant: t.id(), Key: mr.Key(), Length: uint64(n), Last: t.first == len(t.into)-1,
	}.Append(body[:0])
	if err := c.Commit(channel.CTS, false); err != nil {
		if l.full = errors.Is(err, transport.ErrQueueFull); l.full {
			err = nil
		}
		return false, err
	}
	l.spare--
	t.first++
	t.posted += n
	return true, nil
}

// Ended takes a delivered end of a grant of a channel. When it is the last of its message the buffer is the receiver's again, and done says so
// for its token; beside an error, too, as from Completed. An immediate that names no open grant of that channel is an error of the peer.
func (f *Fetcher) Ended(c *channel.Channel, imm uint64) (token uint64, done bool, err error) {
	id := parseEnd(imm).grant
	i := uint32(id)
	if !f.grants || uint64(i) >= uint64(len(f.table)) || f.table[i].c != c || f.table[i].id() != id || f.table[i].ended == f.table[i].first {
		return 0, false, fmt.Errorf("%w: immediate %#x ends no open grant", transport.ErrProtocol, imm)
	}
	t := f.table[i]
	f.lines[c].inFlight--
	if t.ended++; t.ended < len(t.into) {
		return 0, false, f.Progress(c)
	}
	token = t.token
	if err := f.put(t); err != nil {
		return token, true, err
	}
	return token, true, f.Progress(c)
}
