package main

import (
	"fmt"
	"io"
	"time"

	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
)

// costFacts are the sizes from which ranks of this host use other ways to move bytes.
type costFacts struct {
	CopyCall     time.Duration `json:"copy_call_ns"`
	Source       string        `json:"source"` // of CopyCall
	Awaited      int           `json:"awaited_bytes"`
	Staged       int           `json:"staged_bytes"`
	StagedByBoth int           `json:"staged_by_both_bytes"`
}

func theCosts() (*costFacts, error) {
	f := &costFacts{Source: "measured"}
	pinned := setting.Environment().Of(setting.CopyCall)
	var err error
	if pinned.String() != "" {
		f.Source = setting.CopyCall.Name
		if f.CopyCall, err = pinned.Duration(); err != nil {
			return nil, err
		}
	} else if f.CopyCall, err = sys.TimeOwnCall(); err != nil {
		f.CopyCall = copycost.Default.Call
		f.Source = fmt.Sprintf("default, as it cannot be measured: %v", err)
	}
	c := copycost.Costs{Call: f.CopyCall}
	f.Awaited, f.Staged, f.StagedByBoth = c.Awaited(), c.Staged(), c.StagedByBoth()
	return f, nil
}

func (f *costFacts) print(w io.Writer) {
	fmt.Fprintln(w, "COST\tVALUE\tSOURCE")
	fmt.Fprintf(w, "call that copies another process's memory, before the first byte\t%v\t%s\n", f.CopyCall,
		f.Source)
	fmt.Fprintln(w, "CHOICE, shm\tBYTES\tREASON")
	fmt.Fprintf(w, "a blocking send that is likely awaited is read by its receiver, not copied through "+
		"slots\tabove %d\tone call against a second copy\n", f.Awaited)
	fmt.Fprintf(w, "a Bcast of two ranks goes through mapped memory\tup to %d\tlikewise\n", f.Staged)
	fmt.Fprintf(w, "an Allgather, Alltoall or Allreduce of two ranks does\tup to %d\tboth copy at once\n",
		f.StagedByBoth)
}
