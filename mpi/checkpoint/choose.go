package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/topology"
)

// A set is a checkpoint of which every part is there.
type set struct {
	setID
	what  string
	parts [][]part // by rank of the set: the files that have its state
}

// choose returns the latest complete checkpoint among the files of all hosts; of several of one step, the one
// whose number of ranks is nearest to size. All ranks choose the same one. It returns nil if there never was
// a complete one, and an error that names what is missing if there was one.
func choose(all []part, size int) (*set, error) {
	groups := map[setID][]part{}
	for _, p := range all {
		groups[p.Header.Set] = append(groups[p.Header.Set], p)
	}
	var ids []setID
	for id := range groups {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b setID) int {
		return cmp.Or(-cmp.Compare(a.Step, b.Step),
			cmp.Compare(distance(a.Size, size), distance(b.Size, size)),
			-cmp.Compare(a.Run, b.Run), cmp.Compare(a.Size, b.Size))
	})
	var missing []string
	wasOne := false
	for _, id := range ids {
		s, lacks := complete(id, groups[id])
		if lacks == nil {
			return s, nil
		}
		wasOne = wasOne || groups[id][0].Header.Before != none
		missing = append(missing, fmt.Sprintf("step %d without the state of ranks %s of %d", id.Step,
			topology.FormatCPUList(lacks), id.Size))
	}
	if !wasOne {
		return nil, nil
	}
	return nil, fmt.Errorf("checkpoint: none is complete any more: %s", strings.Join(missing, "; "))
}

func distance(a, b int) int { return max(a-b, b-a) }

// complete is the set of these parts, or names the ranks of which none has the state.
func complete(id setID, parts []part) (s *set, lacks []int) {
	s = &set{setID: id, what: parts[0].Header.What, parts: make([][]part, id.Size)}
	for _, p := range parts {
		s.parts[p.Header.Rank] = append(s.parts[p.Header.Rank], p)
	}
	for rank, list := range s.parts {
		if len(list) == 0 {
			lacks = append(lacks, rank)
		}
		slices.SortFunc(list, func(a, b part) int {
			return cmp.Or(-cmp.Compare(a.Name, b.Name), cmp.Compare(a.Host, b.Host)) // states before copies
		})
	}
	return s, lacks
}

// reader is the rank that reads the state of a rank of the set, and the file it reads: that rank itself where
// its host has a file, else one of the host that has the first.
func (s *set) reader(rank int, hosts []int) (reader int, file part) {
	if rank < len(hosts) {
		for _, p := range s.parts[rank] {
			if p.Host == hosts[rank] {
				return rank, p
			}
		}
	}
	file = s.parts[rank][0]
	there := ranksOf(hosts, file.Host)
	return there[rank%len(there)], file
}

// spread reports whether the loss of any one host leaves a state of each rank.
func (s *set) spread() bool {
	for _, list := range s.parts {
		other := func(p part) bool { return p.Host != list[0].Host }
		if !slices.ContainsFunc(list, other) {
			return false
		}
	}
	return true
}
