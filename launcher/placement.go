package launcher

import (
	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/launcher/internal/placement"
)

// Binding says which processors a rank may run on. The zero value binds each rank to a core of its own where
// there are enough, and spreads ranks that outnumber the cores evenly where that is possible. Its field To is
// what ranks are bound to, and CPUs the list for BindList.
type Binding = placement.Binding

// BindTo is what ranks are bound to.
type BindTo = placement.BindTo

const (
	BindDefault = placement.BindDefault // see Binding
	BindNone    = placement.BindNone
	BindCore    = placement.BindCore   // each rank to a core of its own, with all its hardware threads
	BindNUMA    = placement.BindNUMA   // each rank to a NUMA node; consecutive ranks share one
	BindSocket  = placement.BindSocket // each rank to a socket; consecutive ranks share one
	BindList    = placement.BindList   // each rank to a CPU of a list
)

// MaxEndpoints is the largest number of endpoints of a rank (see Job.Endpoints).
const MaxEndpoints = contextid.MaxEndpoints

// EndpointsAuto, as Job.Endpoints, gives all ranks the same number of endpoints: as many as the rank with the
// fewest cores, on any host, has cores, at most MaxEndpoints.
const EndpointsAuto = -1

// CQCores says which cores serve the ranks' completion queues (requirement C1 in
// docs/internals/conformance.md). No rank runs on such a core.
type CQCores = placement.CQCores

// CQFrom says where the cores of completion handlers come from. A completion handler is a thread that serves
// an endpoint's completion queue outside of calls.
type CQFrom = placement.CQFrom

const (
	CQNone = placement.CQNone // ranks have no completion handlers: progress is made inside calls
	CQAuto = placement.CQAuto // a core near each rank, if there are at least twice as many cores as ranks
	// the processors of a list: one for each rank, or a run of several if the list is long enough
	CQList = placement.CQList
)

// Mapping says how ranks are assigned to hosts. If its field ByNode is true, each host in turn gets one rank;
// otherwise a host's slots are filled first. PerNode, if not 0, is the largest number of ranks on each host.
type Mapping = placement.Mapping

// ParseBinding parses the value of --bind-to.
func ParseBinding(text string) (Binding, error) { return placement.ParseBinding(text) }

// ParseCQCores parses the value of --cq-cores.
func ParseCQCores(text string) (CQCores, error) { return placement.ParseCQCores(text) }

// ParseMapping parses the value of --map-by.
func ParseMapping(text string) (Mapping, error) { return placement.ParseMapping(text) }
