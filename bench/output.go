package bench

import (
	"fmt"
	"io"

	"github.com/weft-mpi/weft/internal/outfile"
)

// output is a file that is written at the end of a run.
type output struct {
	what string // such as the plot, the report
	path string
}

// newOutput checks, before anything is measured, that the file can be written. An error is an *OptionError.
func newOutput(what, path string) (*output, error) {
	if err := outfile.Check(path); err != nil {
		return nil, optionErrorf("the %s cannot be written: %v", what, err)
	}
	return &output{what: what, path: path}, nil
}

// write writes the file, if one was requested.
func (o *output) write(fill func(w io.Writer) error) error {
	if o == nil {
		return nil
	}
	if err := outfile.Write(o.path, fill); err != nil {
		return fmt.Errorf("the %s cannot be written: %w", o.what, err)
	}
	return nil
}
