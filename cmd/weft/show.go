package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weft-mpi/weft/internal/recorder"
)

const showHelp = `Show what weft run has written about a job.

Files rank.N.events in the folder of --output-dir have the latest events of each rank, from before the job
failed or got SIGQUIT. They are shown together, by time. A ~ marks a time that is known roughly: that of an
event between two others that may be far apart.`

// newShow is the command that shows the latest events of ranks.
func newShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show FILE…",
		Short:   "Show the latest events of a job's ranks, by time",
		Long:    showHelp,
		Example: "  weft show out/*.events",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			var dumps []*recorder.Record
			for _, name := range files {
				d, err := readEvents(name)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				dumps = append(dumps, d)
			}
			return recorder.Merge(os.Stdout, dumps)
		},
	}
}

func readEvents(name string) (*recorder.Record, error) {
	f, err := os.Open(name)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, err
	}
	defer f.Close()
	return recorder.Parse(f)
}
