package observe

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// clockRounds is how often a clock is compared; the fastest answer counts.
const clockRounds = 16

// CompareClocks makes rank 0 send the time of its clock to the first rank of every other clock: at the
// beginning and at the end, since clocks do not run at the same speed. A rank that fails meanwhile leaves the
// trace without a comparison.
func (o *Observer) CompareClocks() {
	t, e := o.tracer, o.rank.Engine
	if t == nil || len(t.leaders) == 0 {
		return
	}
	context := contextid.Clock.In(contextid.World)
	var b [8]byte
	if e.Rank() == 0 {
		for _, leader := range t.leaders {
			for range clockRounds {
				if e.Recvs.Recv(context, b[:], leader, 0, 1, &engine.Status{}) != nil {
					break
				}
				binary.LittleEndian.PutUint64(b[:], uint64(t.head.Epoch+t.buffer.Now()))
				if e.Sends.Send(context, b[:], leader, 0) != nil {
					break
				}
			}
		}
		return
	}
	if !slices.Contains(t.leaders, e.Rank()) {
		return
	}
	best := trace.Offset{Error: math.MaxInt64}
	for range clockRounds {
		asked := t.head.Epoch + t.buffer.Now()
		if e.Sends.Send(context, b[:], 0, 0) != nil ||
			e.Recvs.Recv(context, b[:], 0, 0, 1, &engine.Status{}) != nil {
			return
		}
		half := (t.head.Epoch + t.buffer.Now() - asked) / 2
		if half < best.Error {
			at := asked + half
			best = trace.Offset{At: at, Ahead: int64(binary.LittleEndian.Uint64(b[:])) - at, Error: half}
		}
	}
	t.head.Offsets = append(t.head.Offsets, best)
}
