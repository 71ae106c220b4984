package mpi

import (
	"context"
	rt "runtime/trace"

	"github.com/weft-mpi/weft/internal/trace"
)

// Region begins a region of the program, such as a phase of its computation, on the calling goroutine, and
// returns the function that ends it there:
//
//	defer mpi.Region(ctx, "assemble")()
//
// The trace of weft run --trace shows it among the calls of the rank. It is a region of runtime/trace too,
// within the task of ctx. Regions of a goroutine nest: one that is ended ends those that began within it.
// Region does not communicate, needs no Init, and costs some ns where nothing is traced. A rank tells some
// thousand names apart, of 256 bytes.
func Region(ctx context.Context, name string) (end func()) {
	region := rt.StartRegion(ctx, name)
	b := tracing.Load()
	if b == nil {
		return region.End
	}
	number := b.Name(name)
	b.Add(trace.RegionBegin, 0, 0, number, 0, 0)
	return func() {
		b.Add(trace.RegionEnd, 0, 0, number, 0, 0)
		region.End()
	}
}
