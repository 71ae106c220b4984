package deadlock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/snapshot"
)

// unlikeText describes how the calls of a collective differ: ranks called others in its place, or all called
// it and are stuck, so that their arguments must differ. It is empty if neither is the case.
func (j Job) unlikeText(rank int, o *snapshot.Op, stuck []int) string {
	if o.Number == 0 || o.Name == "" || o.Name == snapshot.Finalize {
		return ""
	}
	type group struct {
		call  string // the call and its line
		name  string
		ranks []int
	}
	var groups []*group
	members, waiting, mayEnd := j.members(rank, o.Comm), 0, false
	for _, member := range members {
		w, name := j.waitIn(member, o)
		if w == nil {
			continue
		}
		if waiting++; waiting == 1 && member != rank {
			return "" // only the first waiting rank reports
		}
		_, is := slices.BinarySearch(stuck, member)
		mayEnd = mayEnd || !is
		call := name + at(w.Site)
		i := slices.IndexFunc(groups, func(g *group) bool { return g.call == call })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{call: call, name: name})
		}
		groups[i].ranks = append(groups[i].ranks, member)
	}
	on := j.commName(rank, o.Comm)
	if !slices.ContainsFunc(groups, func(g *group) bool { return g.name != o.Name }) {
		if mayEnd || waiting < len(members) || waiting < 2 {
			return ""
		}
		return fmt.Sprintf("all ranks of %s wait in the same %s, so their arguments differ, such as the "+
			"root or the length; WEFT_CHECK=1 says which", on, o.Name)
	}
	parts := make([]string, len(groups))
	for i, g := range groups {
		slices.Sort(g.ranks)
		parts[i] = fmt.Sprintf("%s called %s", Ranks(g.ranks), g.call)
	}
	return fmt.Sprintf("different collectives on %s: %s; all ranks of a communicator must call its "+
		"collectives in the same order", on, strings.Join(parts, ", "))
}

// waitIn returns the wait of a rank in the collective at the same position of the communicator as another's,
// and its name; nil if there is none.
func (j Job) waitIn(rank int, o *snapshot.Op) (*snapshot.Wait, string) {
	if rank >= len(j) || j[rank] == nil {
		return nil, ""
	}
	for i := range j[rank].Waits {
		w := &j[rank].Waits[i]
		for _, other := range w.Ops {
			if other.Kind == snapshot.Collective && other.Comm == o.Comm && other.Number == o.Number &&
				other.Name != "" && other.Name != snapshot.Finalize {
				return w, other.Name
			}
		}
	}
	return nil, ""
}
