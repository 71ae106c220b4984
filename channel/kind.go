package channel

import "fmt"

// Kind says what a message is.
type Kind uint8

const (
	credit   Kind = iota + 2 // only the credit that every message carries; never seen outside
	enlarge                  // requests larger slots; last in its ring, unless KeepSmall; never seen outside
	shrink                   // likewise, smaller slots
	Eager                    // a whole message of the layer above (package eager)
	RTS                      // announces a whole message (package rendezvous)
	First                    // the first fragment of a message (package eager)
	More                     // a further fragment of such a message
	Piece                    // announces an element of such a message (package rendezvous)
	Batch                    // several small messages (package eager)
	large                    // the next message is in the large ring; never seen outside
	CTS                      // where the bytes of an announced message may be written (package rendezvous)
	Withdraw                 // recalls an announced message (package rendezvous)
	ATS                      // ends an announcement by a message (package rendezvous)
	Agree                    // a step of an agreement among ranks that may fail (package agree)
	Revoke                   // ends the use of a communicator
	Update                   // requests a change of the receiver's window memory (package rma)
	Updated                  // answers it
	Claims                   // memory for cooperative copies (package rendezvous)
	Part                     // the next bytes of an Update or Updated that fits no slot
	kinds
)

var kindNames = [kinds]string{"", "", "CREDIT", "ENLARGE", "SHRINK", "EAGER", "RTS", "FIRST", "MORE",
	"PIECE", "BATCH", "LARGE", "CTS", "WITHDRAW", "ATS", "AGREE", "REVOKE", "UPDATE", "UPDATED",
	"CLAIMS", "PART"}

func (k Kind) String() string {
	if k >= credit && k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// inner reports whether a kind belongs to the channel itself, or is unknown.
func (k Kind) inner() bool { return outer>>k&1 == 0 }

// outer is the set of kinds of the layer above.
const outer = 1<<Eager | 1<<RTS | 1<<First | 1<<More | 1<<Piece | 1<<Batch | 1<<CTS | 1<<Withdraw | 1<<ATS |
	1<<Agree | 1<<Revoke | 1<<Update | 1<<Updated | 1<<Claims | 1<<Part
