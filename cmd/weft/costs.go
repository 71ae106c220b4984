package main

import (
	"fmt"
	"io"
	"time"

	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
)

// costFacts are what copies take between ranks of this host, and how messages therefore move.
type costFacts struct {
	Costs        []cost    `json:"costs"`
	Awaited      int       `json:"awaited_bytes"`
	Staged       int       `json:"staged_bytes"`
	StagedByBoth int       `json:"staged_by_both_bytes"`
	Ways         []sendWay `json:"awaited_sends"`
}

// cost is one of copycost.Costs.
type cost struct {
	Name   string        `json:"name"`
	Value  time.Duration `json:"ns"`
	Source string        `json:"source"`
}

// sendWay is how a blocking send of so many bytes moves whose receiver waits.
type sendWay struct {
	Bytes int    `json:"bytes"`
	Way   string `json:"way"`
}

func theCosts() (*costFacts, error) {
	var c copycost.Costs
	call := "measured, as for the first peers of each rank"
	mapped := "assumed: each rank measures it for each peer"
	pinned := setting.Environment().Of(setting.CopyCosts)
	var err error
	if pinned.String() != "" {
		call, mapped = setting.CopyCosts.Name, setting.CopyCosts.Name
		if c, _, err = copycost.Parse(pinned.String()); err != nil {
			return nil, fmt.Errorf("%s: %w", setting.CopyCosts.Name, err)
		}
	} else {
		c = copycost.Default
		if t, each, err := sys.TimeOwnCall(); err != nil {
			call = fmt.Sprintf("assumed, as it cannot be measured: %v", err)
		} else {
			c.Call, c.CallKiB = t, each
		}
	}
	f := &costFacts{Awaited: c.Awaited(), Staged: c.Staged(), StagedByBoth: c.StagedByBoth(), Costs: []cost{
		{"call that copies another process's memory, before the first byte", c.Call, call},
		{"the call then, for each KiB", c.CallKiB, call},
		{"both copies through shared memory, for each KiB", c.MappedKiB, mapped},
	}}
	for n := 2 << 10; n <= 2*copycost.MaxMapped; n *= 2 {
		f.Ways = append(f.Ways, sendWay{n, wayOf(n, f.Awaited)})
	}
	return f, nil
}

func wayOf(n, awaited int) string {
	switch fragment := copycost.Fragment(n); {
	case n > awaited:
		return "the receiver reads it in one copy"
	case n > fragment:
		return fmt.Sprintf("through the ring, in fragments of up to %d bytes", fragment)
	}
	return "through the ring"
}

func (f *costFacts) print(w io.Writer) {
	fmt.Fprintln(w, "COST\tVALUE\tSOURCE")
	for _, c := range f.Costs {
		fmt.Fprintf(w, "%s\t%v\t%s\n", c.Name, c.Value, c.Source)
	}
	fmt.Fprintln(w, "CHOICE, shm\tBYTES\tREASON")
	fmt.Fprintf(w, "a Bcast of two ranks goes through mapped memory\tup to %d\t%s\n", f.Staged,
		"one call against a second copy")
	fmt.Fprintf(w, "an Allgather, Alltoall or Allreduce of two ranks does\tup to %d\tboth copy at once\n",
		f.StagedByBoth)
	for _, v := range f.Ways {
		fmt.Fprintf(w, "a blocking send that is likely awaited\t%d\t%s\n", v.Bytes, v.Way)
	}
}
