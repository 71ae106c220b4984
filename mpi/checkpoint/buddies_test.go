package checkpoint

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/mpi"
)

// Every state has a copy on another host, if there is one, and each host's copies are shared out evenly.
func TestBuddiesAreOnAnotherHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 12).Draw(t, "hosts")
		several := slices.Min(hosts) != slices.Max(hosts)
		keeps := make([]int, len(hosts))
		for rank := range hosts {
			buddy, wards := place(hosts, rank)
			if !several {
				require.Equal(t, mpi.ProcNull, buddy)
				require.Empty(t, wards)
				continue
			}
			require.NotEqual(t, hosts[rank], hosts[buddy])
			keeps[buddy]++
			_, theirs := place(hosts, buddy)
			require.Contains(t, theirs, rank)
		}
		for rank := range hosts {
			_, wards := place(hosts, rank)
			require.Len(t, wards, keeps[rank])
			for other := range hosts {
				if hosts[other] == hosts[rank] {
					require.LessOrEqual(t, keeps[rank], keeps[other]+1)
				}
			}
		}
	})
}
