package mpi

import (
	"context"
	rt "runtime/trace"

	"github.com/weft-mpi/weft/internal/trace"
)

// Region begins a region of the program, such as a phase of its computation, on the calling goroutine. It
// returns the function that ends the region:
//
//	defer mpi.Region(ctx, "assemble")()
//
// The trace of weft run --trace shows the region among the calls of the rank. It is also a region of
// runtime/trace, within the task of ctx. Regions of a goroutine nest: ending one also ends those that began
// within it. Region does not communicate, needs no Init, and costs a few ns when nothing is traced. A rank
// distinguishes some thousand names, of up to 256 bytes each.
func Region(ctx context.Context, name string) (end func()) {
	region := rt.StartRegion(ctx, name)
	b := process.tracing()
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
