package bench

import (
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/relay"
)

// laneCut passes the connections to an address on, and can lose one of them: first what is sent through it
// stays where it is, as behind a link that is down, and then it breaks. It is the first one by which much
// comes at once.
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

// arm has the next connection by which much comes carry nothing more.
func (c *laneCut) arm() { c.armed.Store(true) }

// stopped reports whether there is one.
func (c *laneCut) stopped() bool { return c.victim.Load() != nil }

// cut breaks it.
func (c *laneCut) cut() { c.victim.Load().Lose() }
