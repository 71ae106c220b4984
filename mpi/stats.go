package mpi

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Stats are a rank's counters since Init, and those of its channel to each peer (requirement E13).
type Stats = engine.Stats

// ChannelStats are the counters of the channel to one peer: its phase, the bytes of its registered buffers, what became of its questions for
// larger and smaller ones, and the messages and bytes that each protocol carried.
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
	return b.String()
}
