package recorder

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/contextid"
)

// Kind is the kind of an event.
type Kind uint8

const (
	stamp      Kind = iota + 1
	Sent            // a message was copied into the peer's ring, or was about to be, with others of a batch
	Announced       // bytes were announced to the peer, for it to fetch
	Taken           // the peer has all of an announcement
	Queued          // a send waits for its peer
	Posted          // a goroutine is about to sleep for a receive
	Received        // a message has arrived for a posted receive
	Arrived         // a message has arrived without a receive
	Matched         // a receive has found a message that had arrived
	Fetching        // a transfer of announced bytes begins
	Sleeps          // a goroutine sleeps until an operation is complete
	Wakes           // it goes on
	Collective      // a collective begins; its number is in place of a rank
	Connected       // the channel to a peer is open
	Phase           // this rank sends to a peer in another phase, which is in place of bytes
	Failed          // an operation has failed
	PeerLost        // a peer is given up
	Stopped         // the engine does no more work
	again           // the previous event again; the first word is the number of times
	turns           // the two previous runs again in turn; the first word is the number of runs
	kinds
)

// form is how to show an event: its name, the word before its rank, and whether it has a tag, a context and
// bytes.
type form struct {
	name, rank   string
	tagged, size bool
}

var forms = [kinds]form{
	Sent:       {"sent", "to", true, true},
	Announced:  {"announced", "to", true, true},
	Taken:      {"taken", "by", false, false},
	Queued:     {"send waits", "to", true, true},
	Posted:     {"receive waits", "from", true, true},
	Received:   {"received", "from", true, true},
	Arrived:    {"arrived without a receive", "from", true, true},
	Matched:    {"received what had arrived", "from", true, true},
	Fetching:   {"fetches", "from", false, true},
	Sleeps:     {"sleeps", "", false, false},
	Wakes:      {"goes on", "", false, false},
	Collective: {"begins", "", false, true},
	Connected:  {"connected", "to", false, false},
	Phase:      {"sends in phase", "to", false, false},
	Failed:     {"operation failed", "with", true, true},
	PeerLost:   {"gave up", "on", false, false},
	Stopped:    {"stopped", "", false, false},
}

// text describes the event. m has the names of collectives.
func (r *record) text(m *memory) string {
	k, rank := r.kind(), int32(r[1])>>8
	context, tag, size := uint32(r[0]>>32), int32(r[0]), r[1]>>32
	if k <= stamp || k >= again {
		return fmt.Sprintf("event of kind %d", k)
	}
	f := &forms[k]
	text := f.name
	switch k {
	case Collective:
		text += " " + m.operation(int(rank))
	case Phase:
		text = fmt.Sprintf("%s %d", text, size)
	}
	if f.rank != "" {
		text += " " + f.rank + " " + orAny(rank)
	}
	ofCollective := f.tagged && !contextid.PointToPoint.Is(context)
	if f.tagged && !ofCollective {
		text += ", tag " + orAny(tag)
	}
	if f.size {
		text += fmt.Sprintf(", %d bytes", size)
	}
	if f.tagged || k == Collective {
		text += fmt.Sprintf(", communicator %d", contextid.Local(context))
		if ofCollective {
			text += ", of a collective"
		}
	}
	return text
}

func orAny(n int32) string {
	if n < 0 {
		return "any"
	}
	return fmt.Sprint(n)
}

// operation returns the name of a collective.
func (m *memory) operation(number int) string {
	if number < 0 || number >= maxOperations || m.operations[number][0] == 0 {
		return fmt.Sprintf("collective %d", number)
	}
	name := m.operations[number][:]
	for i, c := range name {
		if c == 0 {
			name = name[:i]
			break
		}
	}
	return string(name)
}
