// Package contextid divides the contexts of messages among communicators and, within a communicator, among
// the parts of weft that send messages. It does no I/O.
package contextid

import (
	"fmt"
	"iter"
	"strings"
)

// Kind says which messages of a communicator a context has. Messages of different kinds never match one
// another, so what weft sends for itself meets no receive, no probe and no message of a program.
type Kind uint32

const (
	PointToPoint Kind = iota // what the program sends and receives by itself: no message of weft's own
	Collective               // the parts of collectives over all ranks of the communicator
	Group                    // the parts of CreateGroup, which is collective over some of its ranks
	Comparison               // what checking mode compares before a collective
	Clock                    // readings of clocks, for traces
	// Post and Complete of the window whose communicator this is, and partitioned sends
	Exposure
	end
)

const (
	shift = 3 // bits of the kind
	// Kinds is the number of contexts of a communicator, more than there are kinds. Its id is the first of
	// them, and a multiple of Kinds.
	Kinds = 1 << shift
)

// Tags of the messages of Post and Complete in context Exposure. They have no bytes.
const (
	PostTag = iota
	CompleteTag
)

// Ids that no rank proposes.
const (
	World    uint32 = 0
	Finalize        = ^uint32(0) &^ (Kinds - 1) // of the agreement in Finalize
)

// Contexts yields the contexts of a communicator.
func Contexts(communicator uint32) iter.Seq[uint32] {
	return func(yield func(context uint32) bool) {
		for k := range end {
			if !yield(k.In(communicator)) {
				return
			}
		}
	}
}

// In returns the context of this kind in a communicator.
func (k Kind) In(communicator uint32) uint32 { return communicator + uint32(k) }

// Is reports whether a context is of this kind.
func (k Kind) Is(context uint32) bool { return context%Kinds == uint32(k) }

// Communicator returns the id of the communicator that a context belongs to.
func Communicator(context uint32) uint32 { return context &^ (Kinds - 1) }

// Number returns the number of a communicator, which counts communicators instead of contexts.
func Number(communicator uint32) uint32 { return communicator >> shift }

// Numbered returns the id of the communicator with a number, of NumberBits bits.
func Numbered(number uint32) uint32 { return number << shift }

// NumberBits is the number of bits in the number of a communicator.
const NumberBits = 32 - shift

// A communicator lives on one endpoint of its ranks, the same at all. The highest bits of its number say
// which.
const (
	endpointBits = 3
	// LocalBits is the number of the other bits.
	LocalBits = NumberBits - endpointBits
	// MaxEndpoints is how many endpoints a rank has at most.
	MaxEndpoints = 1 << endpointBits
)

// EndpointsFor returns how many endpoints a rank has by default that has a number of cores: one for each.
func EndpointsFor(cores int) int { return max(1, min(cores, MaxEndpoints)) }

// OnEndpoint returns the id of the communicator on an endpoint that has a number there, of LocalBits bits.
func OnEndpoint(endpoint int, number uint32) uint32 {
	return Numbered(uint32(endpoint)<<LocalBits | number)
}

// Endpoint returns the endpoint of the communicator that a context belongs to.
func Endpoint(context uint32) int {
	if Communicator(context) == Finalize {
		return 0
	}
	return int(Number(context) >> LocalBits)
}

// Local returns the number of the communicator that a context belongs to among those of its endpoint.
func Local(context uint32) uint32 {
	if Endpoint(context) == 0 {
		return Number(context)
	}
	return Number(context) & (1<<LocalBits - 1)
}

// Named returns the name of the communicator with an id as reports write it: where it lives on another
// endpoint than the world, that follows as in rows@2. Without a name it is called by its number.
func Named(name string, communicator uint32) string {
	if name == "" {
		name = fmt.Sprintf("communicator %d", Local(communicator))
	}
	at := fmt.Sprintf("@%d", Endpoint(communicator))
	if at == "@0" || strings.HasSuffix(name, at) {
		return name
	}
	return name + at
}
