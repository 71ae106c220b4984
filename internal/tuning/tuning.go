// Package tuning is what package mpi offers the tuner of collectives (weft bench tune) beyond what programs
// have: to choose the algorithms of one communicator, and to see which one carried out a call. The rules that
// the tuner writes are those that package coll reads.
package tuning

// Package mpi sets these before main begins. A comm is a *mpi.Comm.
var (
	// Algorithms are the names of a collective's algorithms.
	Algorithms func(operation string) ([]string, error)
	// Select gives a communicator a selection of its own, in the form of WEFT_COLL. All its ranks do so,
	// before they make any other call on it.
	Select func(comm any, selection string) error
	// Used names the algorithm of the latest blocking collective on a communicator; "" if there was none.
	Used func(comm any) string
)

// Rule is a rule of a table that WEFT_COLL names, as it is written (docs/guide/debugging.md): which
// algorithm carries out an operation within bounds. A bound that is 0 or left out is none; bytes are those of
// the vector, or of a rank's block.
type Rule struct {
	Operation string `json:"operation"`
	Algorithm string `json:"algorithm"`
	MinRanks  int    `json:"minRanks,omitempty"`
	MaxRanks  int    `json:"maxRanks,omitempty"`
	MinBytes  int    `json:"minBytes,omitempty"`
	MaxBytes  int    `json:"maxBytes,omitempty"`
}
