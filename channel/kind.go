package channel

import "fmt"

// Kind says what a message is.
type Kind uint8

const (
	skip   Kind = iota + 1 // the rest of the ring is left out; never seen outside
	credit                 // nothing but the credit that every message carries; never seen outside
	Eager                  // a whole message of the layer above (package eager)
	RTS                    // a message announced (package rendezvous)
	kinds
)

func (k Kind) String() string {
	switch k {
	case skip:
		return "SKIP"
	case credit:
		return "CREDIT"
	case Eager:
		return "EAGER"
	case RTS:
		return "RTS"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// inner tells whether a kind is of the channel itself, or none.
func (k Kind) inner() bool { return k < Eager }
