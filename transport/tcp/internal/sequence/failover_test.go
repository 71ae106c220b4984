package sequence

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// Each end has lost more lanes than a report has room for, none of which the other has lost. Each learns of
// all of them, once, and then they are forgotten.
func TestFailover_MoreLanesThanAReportHasRoomFor(t *testing.T) {
	const each = 2*frame.MaxLostLanes + 10
	var ends [2]Failover
	var told [2]map[uint16]int
	for i := range ends {
		told[i] = map[uint16]int{}
		for k := range each {
			ends[i].Closed(uint16(2*k + i))
		}
	}
	for round := 0; ends[0].Due() || ends[1].Due(); round++ {
		require.Less(t, round, 100)
		for i := range ends {
			if !ends[i].Due() {
				continue
			}
			b := frame.AppendLost(nil, ends[i].State(), 1, nil)
			state, _, err := frame.ParseLost(b, 1)
			require.NoError(t, err)
			ends[1-i].Merge(state, func(number uint16) {
				told[1-i][number]++
				ends[1-i].Closed(number)
			})
		}
	}
	for i := range ends {
		for k := range each {
			require.Equal(t, 1, told[i][uint16(2*k+1-i)], "lane %d", 2*k+1-i)
		}
		require.Zero(t, ends[i].Len())
	}
}
