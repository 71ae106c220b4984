// Package tuning is the interface of package mpi for the tuner (weft bench tune): it selects the algorithms
// of one communicator, reports which one carried out a call, and forces the way of messages. The tuner writes
// the rules that package coll reads.
package tuning

// Package mpi sets these before main begins. A comm is a *mpi.Comm.
var (
	// Algorithms are the names of a collective's algorithms.
	Algorithms func(operation string) ([]string, error)
	// Select gives a communicator its own selection, in the form of WEFT_COLL. All its ranks call it before
	// any other call on the communicator.
	Select func(comm any, selection string) error
	// Used names the algorithm of the latest blocking collective on a communicator; "" if there was none.
	Used func(comm any) string
	// ForceWay forces a way of the blocking sends of this rank, over the endpoint of a communicator and the
	// connections that it has, until another call.
	ForceWay func(comm any, w Way)
)

// Way is a way of messages between two ranks.
type Way uint8

const (
	Chosen    Way = iota // by weft
	Ring                 // copied through the ring, as far as it takes them
	Announced            // announced, but for those that never are, and then moved from buffer to buffer
)

// Rule is a rule of a table that WEFT_COLL names (docs/guide/debugging.md): the algorithm for an operation
// within bounds. A bound of 0 does not limit; bytes are those of the vector, or of a rank's block.
type Rule struct {
	Operation string `json:"operation"`
	Algorithm string `json:"algorithm"`
	MinRanks  int    `json:"minRanks,omitempty"`
	MaxRanks  int    `json:"maxRanks,omitempty"`
	MinBytes  int    `json:"minBytes,omitempty"`
	MaxBytes  int    `json:"maxBytes,omitempty"`
}
