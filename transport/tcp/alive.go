package tcp

import (
	"errors"
	"fmt"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// MinPeerTimeout is the shortest Options.PeerTimeout: a process may have to wait so long for a processor.
const MinPeerTimeout = 100 * time.Millisecond

// errSilent marks the loss of a peer whose connection is there and brings nothing.
var errSilent = errors.New("silent")

// tickPeriod is that of the device. Over lanes it is shorter, since the loss of one of several is to be found before that of a peer.
func (d *Device) tickPeriod() time.Duration {
	if d.opts.keeps() {
		return d.opts.PeerTimeout / ticksSilentLanes
	}
	return d.opts.PeerTimeout / ticksSilent
}

// Tick tells peers that this end lives, and ends the connections of those that do not.
func (c *cq) Tick(now time.Time) {
	due, counts := c.clock.tick(now)
	if !due {
		return
	}
	c.clock.ticks++
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		switch {
		case q.rcq != c:
		case q.lanes != nil:
			q.lanes.tick(counts)
		case !c.dev.opts.keeps() || c.clock.ticks%(ticksSilentLanes/ticksSilent) == 0:
			q.tick(counts)
		}
		i += c.still(i, q)
	}
}

func (q *qp) tick(counts bool) {
	if !q.pulse.heard || !q.pulse.said {
		q.drive() // what has come is heard, even if no pass has looked at it, and what can be sent says enough
	}
	say, lost := q.pulse.tick(counts)
	switch {
	case q.fd < 0:
	case lost:
		q.fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, errSilent, q.dev.opts.PeerTimeout), transport.StatusFatal)
	case say:
		q.sayAlive()
	}
}

// sayAlive sends an Alive frame if one can stand here. If not, there is no need: what the socket is full of is on its way to the peer.
func (q *qp) sayAlive() {
	if q.quiet || !q.at.greeted || q.blocked || !q.carry.empty() {
		return
	}
	b := appendFrame(make([]byte, 0, headerSize+sumSize), header{op: opAlive, flags: flagLast}, nil, q.checked)
	if q.secure != nil {
		q.secure.sayAlive(q, b)
		return
	}
	n, err := sys.Write(q.fd, b)
	switch {
	case err != nil:
		q.lastWords()
		q.fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
	case n < len(b):
		q.carry.head = append(q.carry.head[:0], b[max(n, 0):]...)
		q.block()
	}
}
