package rendezvous

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Withdraw recalls an announced message, which it names by the first of its announcements.
//
// If no receive has matched the message, the receiver discards it and answers with an ATS that says so for
// each announcement of the message. If the message was matched, the receiver does nothing, and the
// announcements end as if WITHDRAW had not been sent. So a WITHDRAW that names no open announcement is not an
// error: it has crossed with the announcement's end.
type Withdraw struct {
	ID uint64 // of the announcement
}

const withdrawLen = 8

// Append appends the WITHDRAW to b.
func (w Withdraw) Append(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, w.ID) }

// ParseWithdraw parses what Append has written.
func ParseWithdraw(b []byte) (Withdraw, error) {
	if len(b) != withdrawLen {
		return Withdraw{}, fmt.Errorf("%w: a WITHDRAW has %d bytes, not %d", transport.ErrProtocol, len(b),
			withdrawLen)
	}
	w := Withdraw{ID: binary.LittleEndian.Uint64(b)}
	if w.ID > idBits {
		return Withdraw{}, fmt.Errorf("%w: a WITHDRAW of %#x", transport.ErrProtocol, w.ID)
	}
	return w, nil
}

// Withdraw asks the peer to discard the message whose first announcement has this id, and all of whose
// announcements have been sent. The tokens come back as usual: from OnATS if the peer discarded it, or else
// from whatever ends the announcements.
func (s *Sender) Withdraw(c *channel.Channel, id uint64) error {
	if _, open := s.find(c, id); !open {
		return nil // it has ended
	}
	of := s.channels[c]
	of.withdrawals = append(of.withdrawals, id)
	s.inUse++
	return s.sendWithdrawals(c, of)
}

// sendWithdrawals sends the WITHDRAWs for which there is room.
func (s *Sender) sendWithdrawals(c *channel.Channel, of *channelSends) error {
	sent := 0
	defer func() {
		of.withdrawals = of.withdrawals[:copy(of.withdrawals, of.withdrawals[sent:])]
		s.inUse -= sent
	}()
	for ; sent < len(of.withdrawals); sent++ {
		id := of.withdrawals[sent]
		if _, open := s.find(c, id); !open {
			continue
		}
		ok, full, err := sendControl(c, channel.Withdraw, withdrawLen, false, Withdraw{ID: id})
		of.queueFull = full
		if !ok {
			return err
		}
	}
	return nil
}

// Discard ends announcements of a message that its sender has withdrawn and that no receive has matched.
func (r *Receiver) Discard(c *channel.Channel, sources []Source) error {
	l := r.queue(c)
	for _, s := range sources {
		r.queueFIN(l, ATS{ID: s.ID, Withdrawn: true})
	}
	return r.Progress(c)
}
