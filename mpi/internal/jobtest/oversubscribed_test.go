package jobtest_test

import (
	"context"
	"testing"

	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi"
)

// crowdedRanks are more than the processors of most machines that these tests run on.
const crowdedRanks = 8

var crowded = body("crowded", func(_ context.Context, world *mpi.Comm) error {
	for range 20 {
		if err := mpi.Barrier(world); err != nil {
			return err
		}
	}
	partners := 5 // up to 8 ranks round: 1, 2 and 4 above, 1 and 2 below
	if n := topology.Possible(); 0 < n && n < crowdedRanks {
		if partners = 1; world.Rank() == 0 {
			partners = crowdedRanks - 1
		}
	}
	got := 0
	for _, c := range world.Stats().Channels {
		if c.Endpoint == world.Endpoint() {
			got++
		}
	}
	return want("partners", got, partners)
})

// Ranks of one host that share its processors and have no mailboxes pass a Barrier by way of rank 0; others with
// the partners that dissemination gives them.
func TestCrowdedRanksPassABarrierByWayOfOne(t *testing.T) {
	ranks(t, crowdedRanks, crowded, "WEFT_FABRIC=tcp")
}
