package mpitest

import (
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/relay"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// LoseLane breaks a TCP connection that other ranks have made to a rank, as soon as it has carried a number
// of bytes in one direction; bytes in transit are lost. It needs Fabric("tcp"). Ranks then have two
// connections, or lanes, to each peer, unless Config sets WEFT_LANES: a program must not notice the loss of
// one. With one lane the two ranks fail to each other.
func LoseLane(rank, bytes int) Option {
	return func(o *options) { o.loses = &laneLoss{rank: rank, after: int64(bytes)} }
}

type laneLoss struct {
	rank  int
	after int64
}

// loseLane puts a relay before the rank that loses a lane, until the returned function is called.
func (j *job) loseLane(meeting *wireup.Meeting) (end func()) {
	var before *relay.Relay
	var broke atomic.Bool
	meeting.Via = func(rank int, card wireup.Card) {
		addr := card["tcp"]
		if rank != j.loses.rank || addr == "" {
			return
		}
		var err error
		before, err = relay.Listen(addr, func(c *relay.Conn, _ int, total int64) bool {
			breaks := total > j.loses.after && broke.CompareAndSwap(false, true)
			if breaks {
				c.Lose()
			}
			return breaks
		})
		if err != nil {
			j.t.Errorf("mpitest: LoseLane: %v", err)
			return
		}
		card["tcp"] = before.Addr()
	}
	return func() {
		if before != nil {
			before.Close()
		}
	}
}
