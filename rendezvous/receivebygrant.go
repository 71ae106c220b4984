package rendezvous

import (
	"fmt"
	"math/bits"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// openGrants are the open grants of a channel, by number. A number is an index and, above that, a count, so
// that a duplicate end names no grant.
type openGrants struct {
	open  uint64 // one bit per index
	bytes int    // that are granted
	count uint32
	list  []openGrant // MaxOpenGrants entries, once there is a grant
}

type openGrant struct {
	number uint32
	to     *fetch
	bytes  int
}

const grantPlaceBits = 6

var _ = [1]struct{}{}[MaxOpenGrants-1<<grantPlaceBits]

// next returns the number of the next grant, below maxGrant. There must be room for it.
func (g *openGrants) next() uint32 {
	return (g.count<<grantPlaceBits | uint32(bits.TrailingZeros64(^g.open))) & (maxGrant >> 1)
}

// add adds the next grant.
func (g *openGrants) add(to *fetch, bytes int) {
	if g.list == nil {
		g.list = make([]openGrant, MaxOpenGrants)
	}
	number := g.next()
	place := number % MaxOpenGrants
	g.list[place] = openGrant{number, to, bytes}
	g.open |= 1 << place
	g.bytes += bytes
	g.count++
}

// enough reports whether no more should be granted now: what is under way fills caches and socket buffers.
// Two grants are always open, so that one follows the other without a pause.
func (g *openGrants) enough() bool { return g.bytes >= grantWindow && g.open&(g.open-1) != 0 }

const grantWindow = 2 << 20 // bytes

// take removes a grant; its message is nil if no open grant has this number.
func (g *openGrants) take(number uint32) (o openGrant) {
	place := number % MaxOpenGrants
	if g.open>>place&1 != 0 && g.list[place].number == number {
		o, g.list[place].to = g.list[place], nil
		g.open &^= 1 << place
		g.bytes -= o.bytes
	}
	return o
}

// byGrants is the transfer method in which the sender writes directly into the user's buffer: each region of
// it is one grant, or several if it is long, so that it shows that bytes arrive.
type byGrants struct{}

const maxGranted = 8 << 20 // bytes of a grant

func (byGrants) ask(r *Receiver, l *channelQueue, t *fetch) (bool, error) {
	p := &t.into.list[t.into.first]
	n := min(maxGranted, p.size-p.asked)
	whole := p.asked+n == p.size
	sent, err := r.grant(l, t, CTS{Key: p.mr.Key(), Offset: uint64(p.asked), Length: uint64(n),
		Last: whole && t.into.first == len(t.into.list)-1})
	if !sent {
		return false, err
	}
	if p.asked += n; whole {
		t.into.first++
	}
	return true, nil
}

func (byGrants) arrive(_ *Receiver, t *fetch, n int) { t.arrived += n }

// grant sends a CTS for the next bytes of a message, after it has posted the receive request for the end of
// the grant; false if there is no room.
func (r *Receiver) grant(l *channelQueue, t *fetch, cts CTS) (sent bool, err error) {
	if l.spareRecvs == 0 {
		if err := l.c.QP().PostRecv(&r.emptyRecv); err != nil {
			return false, fmt.Errorf("receive request for the end of a grant: %w", err)
		}
		l.spareRecvs++
	}
	cts.ID, cts.Grant = t.source.ID, uint64(l.granted.next())
	if sent, l.queueFull, err = sendControl(l.c, channel.CTS, ctsLen, true, cts); !sent {
		return false, err
	}
	l.held = true
	l.spareRecvs--
	l.granted.add(t, int(cts.Length))
	t.asked += int(cts.Length)
	return true, nil
}

// OnGrantEnd handles the delivered end of a grant of a channel. If it is the last of its message, the buffer
// belongs to the receiver again, and done is true for its token. done may be true together with an error, as
// from OnCompletion. An immediate that names no open grant of that channel is an error of the peer.
func (r *Receiver) OnGrantEnd(c *channel.Channel, imm uint32) (token uint64, done bool, err error) {
	var o openGrant
	l := r.queues[c]
	if l != nil {
		o = l.granted.take(parseGrantEnd(imm).grant)
	}
	t := o.to
	if t == nil {
		return 0, false, fmt.Errorf("%w: immediate %#x ends no open grant", transport.ErrProtocol, imm)
	}
	l.inFlight--
	if t.method.arrive(r, t, o.bytes); t.arrived < t.want {
		return 0, false, r.Progress(c)
	}
	token = t.token
	if err := r.release(t); err != nil {
		return token, true, err
	}
	return token, true, r.Progress(c)
}
