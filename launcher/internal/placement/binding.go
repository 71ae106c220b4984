package placement

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/topology"
)

// Binding says on which CPUs a rank may run. The zero value binds each rank to a core of its own if there are
// enough, and otherwise spreads the ranks evenly over the cores if that is possible.
type Binding struct {
	To BindTo
	// of BindList: assigned to the ranks in this order, one each, and again from the beginning if there are
	// more ranks
	CPUs []int
}

// BindTo is the unit to which ranks are bound.
type BindTo uint8

const (
	// BindCore if every rank gets a core that no other rank and no other job of this user has, or if no other
	// such job has a core and each core gets the same number of ranks; otherwise BindNone
	BindDefault BindTo = iota
	BindNone
	BindCore   // each rank to a core of its own, with all its hardware threads
	BindNUMA   // each rank to a NUMA node; consecutive ranks share one
	BindSocket // each rank to a socket; consecutive ranks share one
	BindList   // each rank to a processor of a list
)

// ParseBinding parses the value of --bind-to.
func ParseBinding(text string) (Binding, error) {
	switch text {
	case "none":
		return Binding{To: BindNone}, nil
	case "core":
		return Binding{To: BindCore}, nil
	case "numa":
		return Binding{To: BindNUMA}, nil
	case "socket":
		return Binding{To: BindSocket}, nil
	}
	cpus, err := parseProcessors(text, "none, core, numa, socket")
	return Binding{To: BindList, CPUs: cpus}, err
}

// CQCores says which cores serve the ranks' completion queues (requirement C1 in
// docs/internals/conformance.md). No rank runs on such a core.
type CQCores struct {
	From CQFrom
	// of CQList: each rank gets the same number of them, in rank order, one or, if the list is long enough,
	// several for the handlers of its endpoints; the others stay idle
	CPUs []int
}

// CQFrom says where the cores of completion handlers come from.
type CQFrom uint8

const (
	CQNone CQFrom = iota // ranks have no completion handlers: progress is made inside calls
	// a core near each rank for the rank's handler, if there are at least twice as many cores as ranks;
	// otherwise as CQNone
	CQAuto
	// the processors of a list: one for each rank, or a run of several if the list is long enough
	CQList
)

// ParseCQCores parses the value of --cq-cores.
func ParseCQCores(text string) (CQCores, error) {
	switch text {
	case "none":
		return CQCores{}, nil
	case "auto":
		return CQCores{From: CQAuto}, nil
	}
	cpus, err := parseProcessors(text, "none, auto")
	return CQCores{From: CQList, CPUs: cpus}, err
}

// parseProcessors parses a list of processors. words are the alternatives, for its error.
func parseProcessors(text, words string) ([]int, error) {
	if text == "" || text[0] < '0' || text[0] > '9' {
		return nil, fmt.Errorf("%.40q is neither %s nor a list of processors such as 0-3,8", text, words)
	}
	return topology.ParseCPUList(text)
}
