package checkpoint

import (
	"slices"

	"github.com/weft-mpi/weft/mpi"
)

// place returns the rank that keeps a copy of a rank's state, and those of whose states it keeps copies
// itself. The i-th rank of a host has its buddy on the next host, so that no host has a state and its only
// copy. Without another host there are no copies. hosts are the numbers of the ranks' hosts.
func place(hosts []int, rank int) (buddy int, wards []int) {
	for other := range hosts {
		if buddyOf(hosts, other) == rank {
			wards = append(wards, other)
		}
	}
	return buddyOf(hosts, rank), wards
}

func buddyOf(hosts []int, rank int) int {
	order := slices.Compact(slices.Sorted(slices.Values(hosts)))
	if len(order) == 1 {
		return mpi.ProcNull
	}
	own := ranksOf(hosts, hosts[rank])
	next := order[(slices.Index(order, hosts[rank])+1)%len(order)]
	there := ranksOf(hosts, next)
	return there[slices.Index(own, rank)%len(there)]
}

// ranksOf are the ranks on a host.
func ranksOf(hosts []int, host int) (ranks []int) {
	for rank, h := range hosts {
		if h == host {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// firstOf is the first rank on a host.
func firstOf(hosts []int, host int) int { return slices.Index(hosts, host) }
