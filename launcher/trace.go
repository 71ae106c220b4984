package launcher

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/outfile"
	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/launcher/internal/tracefile"
)

// tellTrace writes the traces of all ranks into one file, and reports the file and what is missing in it. It
// returns an error if it could not be written.
func (d *artifacts) tellTrace() *Failure {
	var sources []tracefile.Source
	var missing []int
	for id := range d.job.programs.of {
		r, err := trace.Decode(d.latest(snapshot.Trace, id))
		if err != nil || r.Rank != id {
			missing = append(missing, id)
			continue
		}
		sources = append(sources, tracefile.Source{Rank: r, Host: d.job.nodes.of[id].name})
	}
	if len(sources) == 0 {
		d.job.output.Notice("no rank has left a trace: none has called Init, or all were killed")
		return nil
	}
	var sum tracefile.Summary
	err := outfile.Write(d.job.Trace, func(w io.Writer) (err error) {
		sum, err = tracefile.Write(w, sources)
		return err
	})
	if err != nil {
		return d.lose("trace", err)
	}
	d.job.output.Notice("the trace of %s is in %s, %s, %s%s; weft show sums it up, https://ui.perfetto.dev "+
		"shows it", plural.Count(len(sources), "rank"), d.job.Trace, plural.Count(sum.Events, "event"),
		plural.Count(sum.Messages, "message"), without(missing))
	if sum.Unpaired > 0 {
		d.job.output.Notice("the trace: %s of messages without an arrow: the other ends are not in it, or "+
			"were cancelled, or clocks disagree", plural.Count(sum.Unpaired, "end"))
	}
	for _, rank := range slices.Sorted(maps.Keys(sum.Omitted)) {
		d.job.output.Notice("the trace: the last %s of rank %d are left out; WEFT_TRACE=64M, or the "+
			"like, has room for more", plural.Count(int(sum.Omitted[rank]), "event"), rank)
	}
	if len(sum.Rough) > 0 {
		d.job.output.Notice("the trace: the clocks of %s are aligned by the time of day alone",
			strings.Join(sum.Rough, ", "))
	}
	return nil
}
