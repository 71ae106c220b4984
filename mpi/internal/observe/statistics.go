package observe

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// reportWithin bounds the wait for the counters of a rank that hangs.
const reportWithin = time.Second

// statistics prints the counters of a rank.
type statistics struct {
	h       *engine.Hub
	out     io.Writer
	calls   *callStats
	printed string // the latest, which are not repeated
}

func (s *statistics) print() {
	h, calls := s.h, s.calls
	text := make(chan string, 1)
	go func() { text <- table(h.Rank(), h.Stats()) + calls.line(h.Rank()) }()
	select {
	case t := <-text:
		if t != s.printed {
			fmt.Fprint(s.out, t)
		}
		s.printed = t
	case <-time.After(reportWithin):
		fmt.Fprintf(s.out, "weft: rank %d: no counters within %v\n", h.Rank(), reportWithin)
	}
}

// table returns the table of weft run --stats for a rank: a line for each peer with which it has
// communicated.
func table(rank int, st engine.Stats) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(&b, "weft: rank %d: %d connections, %d bytes of registered buffers, %d more of "+
		"collectives, %d unexpected messages\n", rank, st.Connections, st.Registered, st.Collective,
		st.Unexpected)
	endpointTable(&b, st)
	if len(st.Channels) == 0 {
		return b.String()
	}
	fmt.Fprintln(w, "to\tphase\tregistered\tasked\tacked\trefused\tshrunk\tzero\thead "+
		"only\teager\tbytes\trendezvous\tbytes\t")
	for _, c := range st.Channels {
		to := strconv.Itoa(c.Peer)
		if len(st.Endpoints) > 1 {
			to += fmt.Sprintf(" at endpoint %d", c.Endpoint)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", to, c.Phase+1,
			c.Registered, c.EnlargesSent, c.EnlargesGranted, c.ResizesRefused,
			c.ShrinksGranted, c.ZeroTransfers, c.HeadsWithoutTail, c.Eager, c.EagerBytes, c.Rendezvous,
			c.RendezvousBytes)
	}
	w.Flush()
	laneTable(&b, st)
	readTable(&b, st)
	return b.String()
}

// contended is the number of waits for its lock from which a single endpoint is shown in a table.
const contended = 100

// endpointTable returns the table of the endpoints of a rank that uses several, has completion handlers, or
// has goroutines that wait for each other: what each endpoint has moved, what its handler has done and on
// which core, and how often goroutines waited for its lock.
func endpointTable(b *strings.Builder, st engine.Stats) {
	if e := &st.Endpoints[0]; len(st.Endpoints) == 1 && e.HandlerCore < 0 && e.LockWaits < contended {
		return
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "endpoint\tconnections\teager\trendezvous\tpasses\tsleeps\thandler\tevents\t"+
		"wake-ups\thandler passes\tcompletions\tlock waits\thanded over\tfor\t")
	for _, e := range st.Endpoints {
		handler := "none"
		if e.HandlerCore >= 0 {
			handler = fmt.Sprintf("core %d", e.HandlerCore)
		}
		if e.HandlerBulk {
			handler += ", bulk"
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t", e.Number, e.Connections, e.EagerSent, e.Announced,
			e.Passes, e.Sleeps)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t", handler, e.Events, e.HandlerWakes, e.HandlerPasses,
			e.Completions)
		fmt.Fprintf(w, "%d\t%d\t%v\t\n", e.LockWaits, e.LockHandOvers, e.LockWaited.Round(time.Microsecond))
	}
	w.Flush()
}

// readTable writes a line for each peer whose RDMA Reads this rank has answered: their bytes, and the bytes
// copied per byte moved (R2 of docs/internals/conformance.md).
func readTable(b *strings.Builder, st engine.Stats) {
	for _, c := range st.Channels {
		if c.ReadBytes > 0 {
			fmt.Fprintf(b, "weft: rank %d read %d bytes; %d of them were copied first: %.2f per byte moved\n",
				c.Peer, c.ReadBytes, c.ReadBytesCopied, float64(c.ReadBytesCopied)/float64(c.ReadBytes))
		}
	}
}

// laneTable writes a line for each peer with several lanes, or with a lost one: the number of lanes, lost and
// restored ones, bytes sent again, segments dropped as duplicates, and the holes in the received sequence:
// open now, most at once, all, and for how long.
func laneTable(b *strings.Builder, st engine.Stats) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "to\tlanes\tdown\tup\tsent again\tdropped\tholes open\tmost\tclosed\tlongest\tin all\t")
	some := false
	for _, c := range st.Channels {
		if l := c.Lanes; l.Lanes > 1 || l.Down > 0 || l.Up > 0 {
			some = true
			fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%v\t\n", c.Peer, l.Lanes, l.Down, l.Up,
				l.Resent, l.Duplicates,
				l.Holes, l.MaxHoles, l.HolesClosed, l.LongestHole.Round(time.Microsecond),
				l.HoleTime.Round(time.Microsecond))
		}
	}
	if some {
		w.Flush()
	}
}
