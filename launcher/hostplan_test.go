package launcher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/placement"
)

func TestPlanTellsWhyRanksAreNotBound(t *testing.T) {
	var p plan
	p.take(placement.Placement{Unbound: "other weft jobs use 2 of 4 cores"})
	require.Equal(t, "not bound (other weft jobs use 2 of 4 cores)", p.boundTo(0))
	require.Equal(t, "no completion handler", p.handledOn(0))
	p.take(placement.Placement{CPUs: [][]int{{1}}})
	require.Equal(t, "bound to processor 1", p.boundTo(0))
}
