package rendezvous

import (
	"fmt"
	"math/bits"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// openGrants are the grants of a channel whose end has not come, by number. A number is the place of its
// grant here and, above that, a count, so that an end which comes twice names nothing.
type openGrants struct {
	open  uint64 // one bit for each place
	count uint32
	list  []openGrant // MaxOpenGrants places, from the first grant on
}

type openGrant struct {
	number uint32
	to     *fetch
}

const grantPlaceBits = 6

var _ = [1]struct{}{}[MaxOpenGrants-1<<grantPlaceBits]

// next is the number that the next grant has, below maxGrant. There is room for it.
func (g *openGrants) next() uint32 {
	return (g.count<<grantPlaceBits | uint32(bits.TrailingZeros64(^g.open))) & (maxGrant >> 1)
}

// add notes that the next grant is made.
func (g *openGrants) add(to *fetch) {
	if g.list == nil {
		g.list = make([]openGrant, MaxOpenGrants)
	}
	number := g.next()
	place := number % MaxOpenGrants
	g.list[place] = openGrant{number, to}
	g.open |= 1 << place
	g.count++
}

// take ends a grant; nil if none that is open has this number.
func (g *openGrants) take(number uint32) *fetch {
	place := number % MaxOpenGrants
	if g.open>>place&1 == 0 {
		return nil
	}
	if o := &g.list[place]; o.number == number {
		to := o.to
		o.to = nil
		g.open &^= 1 << place
		return to
	}
	return nil
}

// sendCTS sends the CTS for the next segment of a message; false when there is no room for it.
func (r *Receiver) sendCTS(c *channel.Channel, l *channelQueue, t *fetch) (bool, error) {
	if err := r.postEndRecv(c, l); err != nil {
		return false, err
	}
	mr := t.segments[t.first].mr
	last := t.first == len(t.segments)-1
	sent, err := r.grant(c, l, t, CTS{Key: mr.Key(), Length: uint64(len(mr.Bytes())), Last: last})
	if sent {
		t.first++
	}
	return sent, err
}

// grant sends a CTS for the next bytes of a message. A receive request for its end is posted.
func (r *Receiver) grant(c *channel.Channel, l *channelQueue, t *fetch, cts CTS) (sent bool, err error) {
	cts.ID, cts.Grant = t.source.ID, uint64(l.granted.next())
	if sent, l.queueFull, err = sendControl(c, channel.CTS, ctsLen, cts); !sent {
		return false, err
	}
	l.spareRecvs--
	l.granted.add(t)
	t.posted += int(cts.Length)
	return true, nil
}

// postEndRecv posts the receive request for the end of the next grant.
func (r *Receiver) postEndRecv(c *channel.Channel, l *channelQueue) error {
	if l.spareRecvs == 0 {
		if err := c.QP().PostRecv(&r.emptyRecv); err != nil {
			return fmt.Errorf("receive request for the end of a grant: %w", err)
		}
		l.spareRecvs++
	}
	return nil
}

// OnGrantEnd handles the delivered end of a grant of a channel. If it is the last of its message, the buffer
// belongs to the receiver again, and done is true for its token. done may be true together with an error, as
// from OnCompletion. An immediate that names no open grant of that channel is an error of the peer.
func (r *Receiver) OnGrantEnd(c *channel.Channel, imm uint32) (token uint64, done bool, err error) {
	var t *fetch
	l := r.queues[c]
	if l != nil {
		t = l.granted.take(parseGrantEnd(imm).grant)
	}
	if t == nil {
		return 0, false, fmt.Errorf("%w: immediate %#x ends no open grant", transport.ErrProtocol, imm)
	}
	l.inFlight--
	t.grantsEnded++
	if t.stage != nil {
		r.placeStaged(t)
	}
	if t.stage != nil && t.arrived < t.want || t.grantsEnded < len(t.segments) {
		return 0, false, r.Progress(c)
	}
	token = t.token
	if err := r.release(t); err != nil {
		return token, true, err
	}
	return token, true, r.Progress(c)
}
