package runqueue

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/transport"
)

func TestOrder_N7_LowLatencyGoesFirst(t *testing.T) {
	var o Queue[int]
	o.Add(transport.Bulk, 10)
	o.Add(transport.LowLatency, 1)
	o.Add(transport.Bulk, 11)
	o.Add(transport.LowLatency, 2)
	o.Add(transport.LowLatency, 1)
	for _, want := range []int{1, 2, 10, 11} {
		require.Equal(t, want >= 10, o.OnlyBulk())
		got, ok := o.Next()
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok := o.Next()
	require.False(t, ok)
	require.False(t, o.OnlyBulk())
}

func TestOrder_N7_BulkIsNotStarved(t *testing.T) {
	var o Queue[int]
	o.Add(transport.Bulk, 10)
	o.Add(transport.LowLatency, 1)
	for turns := 0; ; turns++ {
		x, _ := o.Next()
		if x == 10 {
			require.Equal(t, transport.BulkAfter, turns)
			return
		}
		require.Less(t, turns, transport.BulkAfter, "bulk still waits")
		o.Add(transport.LowLatency, 1)
	}
}

// Whatever comes in whatever order: nobody is lost or served twice, a class keeps its order, and both bounds
// hold.
func TestOrder_N7_EveryTurnComesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Queue[int]
		var model [2][]int
		next, ahead := 0, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				c := transport.Class(rapid.IntRange(0, 1).Draw(t, "class"))
				o.Add(c, next)
				model[c] = append(model[c], next)
				next++
				continue
			}
			x, ok := o.Next()
			low, bulk := &model[transport.LowLatency], &model[transport.Bulk]
			if ok != (len(*low)+len(*bulk) > 0) {
				t.Fatalf("Next says %v with %v and %v waiting", ok, *low, *bulk)
			}
			switch {
			case !ok:
			case len(*low) > 0 && x == (*low)[0]:
				if len(*bulk) > 0 {
					ahead++
				} else {
					ahead = 0
				}
				*low = (*low)[1:]
			case len(*bulk) > 0 && x == (*bulk)[0]:
				if len(*low) > 0 && ahead < transport.BulkAfter {
					t.Fatalf("bulk went before low latency, after %d turns", ahead)
				}
				ahead = 0
				*bulk = (*bulk)[1:]
			default:
				t.Fatalf("%d had its turn; %v and %v waited", x, *low, *bulk)
			}
			if ahead > transport.BulkAfter {
				t.Fatalf("bulk has waited for %d turns", ahead)
			}
		}
	})
}
