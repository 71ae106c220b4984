package mpi

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Stats are a rank's counters since Init, and those of its channel to each peer (requirement E13).
type Stats = engine.Stats

// ChannelStats are the counters of the channel to one peer: its phase, the bytes of its registered buffers, what became of its questions for
// larger and smaller ones, the messages and bytes that each protocol carried, and what became of its lanes (requirement H5).
type ChannelStats = engine.ChannelStats

// Stats returns the counters of this rank, for all communicators together. After Finalize all are zero.
func (c *Comm) Stats() Stats {
	if c.check() != nil {
		return Stats{}
	}
	return c.e.Stats()
}

// table is what weft run --stats shows of a rank: a line for each peer that it has talked to.
func table(rank int, st Stats) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(&b, "weft: rank %d: %d connections, %d bytes of registered buffers, %d unexpected messages\n", rank, st.Connections,
		st.Registered, st.Unexpected)
	if len(st.Channels) == 0 {
		return b.String()
	}
	fmt.Fprintln(w, "to\tphase\tregistered\tasked\tacked\trefused\tshrunk\tzero\thead only\teager\tbytes\trendezvous\tbytes\t")
	for _, c := range st.Channels {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Peer, c.Phase+1, c.Registered, c.Asked, c.Acked, c.Refused,
			c.Shrunk, c.ZeroTransfers, c.HeadsNoTail, c.Eager, c.EagerBytes, c.Rendezvous, c.RendezvousBytes)
	}
	w.Flush()
	laneTable(&b, st)
	return b.String()
}

// laneTable is what it shows of the lanes to each peer that has several, or has lost one: how many there are, those lost and those come back,
// bytes sent again, segments dropped because they were there, and the holes in what arrives: open now, most at once, all, and for how long.
func laneTable(b *strings.Builder, st Stats) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "to\tlanes\tdown\tup\tsent again\tdropped\tholes open\tmost\tclosed\tlongest\tin all\t")
	some := false
	for _, c := range st.Channels {
		if l := c.Lanes; l.Lanes > 1 || l.Down > 0 || l.Up > 0 {
			some = true
			fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%v\t\n", c.Peer, l.Lanes, l.Down, l.Up, l.Resent, l.Duplicates,
				l.Holes, l.MostHoles, l.HolesClosed, l.LongestHole.Round(time.Microsecond), l.HoleTime.Round(time.Microsecond))
		}
	}
	if some {
		w.Flush()
	}
}
