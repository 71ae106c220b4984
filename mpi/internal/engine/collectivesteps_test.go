package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// The long local steps of a collective that nobody waits for yet are executed in another goroutine, for which
// nothing is allocated when the collective is started again.
func TestCollective_StepsWithoutAWaiter(t *testing.T) {
	e := world(t, fabrics["tcp"](t, 1, 1))[0]
	in, out := make([]byte, 2*quickBytes), make([]byte, 2*quickBytes)
	pattern(in, 0, 3)
	call := coll.Call{Operation: coll.OpAllgather, Size: 1, ElemSize: 1, Count: len(in)}
	c := &Collective{Call: call, Context: world0, Input: in, Output: out, Signature: call.Signature(),
		Tag: CollectiveTag(false, 1, call.Operation, call.Signature())}
	c.Call.Build(&c.Schedule)
	round := func() {
		clear(out)
		r, err := e.Collectives.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Requests.Wait(r); err != nil {
			t.Fatal(err)
		}
	}
	round()
	require.NotNil(t, c.runSteps, "they were executed in another goroutine")
	require.Equal(t, in, out)
	require.Zero(t, testing.AllocsPerRun(200, round))
}
