package mpi

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// explain prints the algorithm of a call (WEFT_COLL=explain), once for each call site and length. Only rank 0
// of the communicator prints.
func explain(c *Comm, call *coll.Call, algorithm string, reason coll.Reason) {
	if call.Rank != 0 {
		return
	}
	why := "chosen"
	switch reason {
	case coll.Forced:
		why = "forced by WEFT_COLL"
	case coll.FromTable:
		why = "named by the table of WEFT_COLL"
	}
	pcs := make([]uintptr, 16)
	_, site := program.CalledFrom(pcs[:runtime.Callers(2, pcs)])
	because := ""
	if reason == coll.Chosen {
		because = ": " + call.Why()
	}
	line := fmt.Sprintf("weft: %s: %v on %s, %d ranks, %d bytes: %s, %s of %s%s\n", site,
		call.Operation, c.Name(), call.Size, call.Bytes(), algorithm, why,
		strings.Join(coll.Algorithms(call.Operation), ", "), because)
	if _, before := c.job.explained.LoadOrStore(line, true); !before {
		fmt.Fprint(c.job.out, line)
	}
}
