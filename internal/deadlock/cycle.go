package deadlock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/snapshot"
)

// maxStarts bounds the number of ranks from which cycles are searched.
const maxStarts = 64

// cycle returns a short cycle of stuck ranks, each waiting for the next, or nil: the shortest one through the
// first maxStarts ranks.
func (j Job) cycle(stuck []int) []int {
	var shortest []int
	for _, start := range stuck[:min(len(stuck), maxStarts)] {
		from := map[int]int{} // predecessor of each rank, breadth first
		for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
			rank := queue[0]
			for _, next := range j.needs(rank, stuck) {
				if next == start {
					cycle := []int{rank}
					for at := rank; at != start; {
						at = from[at]
						cycle = append(cycle, at)
					}
					slices.Reverse(cycle)
					if shortest == nil || len(cycle) < len(shortest) {
						shortest = cycle
					}
					queue = queue[:1]
					break
				}
				if _, seen := from[next]; !seen {
					from[next] = rank
					queue = append(queue, next)
				}
			}
		}
	}
	return shortest
}

// needs returns the stuck ranks for which a rank waits.
func (j Job) needs(rank int, stuck []int) []int {
	var needed []int
	for i := range j[rank].Waits {
		for _, o := range j[rank].Waits[i].Ops {
			switch {
			case o.Name == snapshot.Finalize:
				needed = append(needed, j.missing(rank, &o)...)
			case o.Kind == snapshot.Collective:
				needed = append(needed, o.Needs...)
			case o.Kind == snapshot.Lock:
				needed = append(needed, j.holders(&o)...)
			case o.Peer == snapshot.Any:
				for _, member := range j.members(rank, o.Comm) {
					if member != rank {
						needed = append(needed, member)
					}
				}
			default:
				needed = append(needed, o.Peer)
			}
		}
	}
	return slices.DeleteFunc(needed, func(rank int) bool {
		_, is := slices.BinarySearch(stuck, rank)
		return !is
	})
}

// cycleText describes how the ranks of a cycle wait for one another.
func (j Job) cycleText(cycle []int) string {
	parts := make([]string, len(cycle))
	for i, rank := range cycle {
		next := cycle[(i+1)%len(cycle)]
		parts[i] = fmt.Sprintf("rank %d waits in %s", rank, j.describe(rank, j.waitFor(rank, next), true))
	}
	end := "none of them can go on"
	switch len(cycle) {
	case 1:
		end = "it waits for itself and cannot go on"
	case 2:
		end = "neither can go on"
	}
	if j.InFlight(cycle) {
		end = "messages between them are under way, or the network has lost them"
	}
	return strings.Join(parts, "; ") + ": " + end
}
