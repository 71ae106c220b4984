package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/internal/perfetto"
	"github.com/weft-mpi/weft/internal/picture"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/tracereport"
)

const showHelp = `Show what weft run has recorded of a job: a trace, or the latest events of its ranks.

Of a trace, the file of weft run --trace, weft show prints a summary: the time in each call and region, how
much of it goroutines slept, what each rank did, and the bytes between ranks. A late sender is a message for
which a receiving call waited before it was sent; WAITED is the total of these waits. A late receiver is a
message that was sent before its receive's call; LAY is the total time that such messages lay waiting. --plot
draws a timeline, the matrix of bytes and the ranks' time. https://ui.perfetto.dev shows the events themselves.

The files rank.N.events in the folder of --output-dir hold the latest events of each rank before the job
failed or got SIGQUIT. weft show merges them by time. A ~ marks an approximate time. Where a rank uses
several endpoints, each event names its own, and "the same" refers to the event before it there.`

// newShow returns the command that shows traces, and the latest events of ranks.
func newShow() *cobra.Command {
	var plot string
	cmd := &cobra.Command{
		Use:     "show FILE…",
		Short:   "Summarize a trace, or show the latest events of a job's ranks",
		Long:    showHelp,
		Example: "  weft show job.pftrace\n  weft show job.pftrace --plot job.svg\n  weft show out/*.events",
		Args:    words("file", 1, math.MaxInt),
		RunE: func(_ *cobra.Command, files []string) error {
			if plot != "" {
				if _, err := picture.Format(plot); err != nil {
					return usageErrorf("--plot %w", err)
				}
			}
			var dumps []*recorder.Record
			for _, name := range files {
				trace, d, err := readShown(name)
				if err == nil && trace != nil {
					if len(files) > 1 {
						return usageErrorf("%s is a trace: it has all ranks, and is shown alone", name)
					}
					return showTrace(trace, plot)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				dumps = append(dumps, d)
			}
			if plot != "" {
				return usageErrorf("--plot draws a trace, and these files have the latest events of ranks")
			}
			return recorder.Merge(os.Stdout, dumps)
		},
	}
	cmd.Flags().StringVar(&plot, "plot", "",
		"draw a trace into this `FILE`, as SVG, PNG or HTML by its name's ending")
	return cmd
}

// readShown reads a file: a trace, or events.
func readShown(name string) (*tracereport.Job, *recorder.Record, error) {
	f, err := os.Open(name)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, nil, err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	d, err := recorder.Parse(in)
	if err == nil {
		return nil, d, nil
	}
	if _, again := f.Seek(0, io.SeekStart); again != nil || !errors.Is(err, recorder.ErrNoDump) {
		return nil, nil, err
	}
	trace, err := tracereport.Read(f)
	if errors.Is(err, perfetto.ErrNoTrace) {
		err = fmt.Errorf("neither a trace of weft run --trace nor the events of a rank: %w", err)
	}
	return trace, nil, err
}

func showTrace(trace *tracereport.Job, plot string) error {
	if err := trace.WriteText(os.Stdout); err != nil || plot == "" {
		return err
	}
	f, err := os.Create(plot)
	if err != nil {
		return err
	}
	err = trace.WritePlot(f, plot)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
