package bench

import (
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/relay"
)

// laneCut forwards the connections to an address, and can lose one of them: first it stops, as behind a link
// that is down, and then it breaks. It loses the first connection that carries much at once.
type laneCut struct {
	*relay.Relay
	armed  atomic.Bool
	victim atomic.Pointer[relay.Conn]
}

// newLaneCut listens for connections to an address of the TCP fabric.
func newLaneCut(addr string) (*laneCut, error) {
	c := &laneCut{}
	r, err := relay.Listen(addr, c.hold)
	if err != nil {
		return nil, err
	}
	c.Relay = r
	return c, nil
}

func (c *laneCut) hold(conn *relay.Conn, n int, _ int64) bool {
	const much = 4 << 10 // more than an acknowledgement
	if n >= much && c.armed.CompareAndSwap(true, false) {
		c.victim.Store(conn)
	}
	return c.victim.Load() == conn
}

// arm makes the next connection that carries much stop.
func (c *laneCut) arm() { c.armed.Store(true) }

// stopped reports whether a connection has stopped.
func (c *laneCut) stopped() bool { return c.victim.Load() != nil }

// cut breaks the stopped connection.
func (c *laneCut) cut() { c.victim.Load().Lose() }
