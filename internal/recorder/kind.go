package recorder

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/contextid"
)

// Kind says what an event is.
type Kind uint8

const (
	stamp      Kind = iota + 1
	Sent            // a message was copied into the peer's ring, or was about to be, with others of a batch
	Announced       // bytes were announced to the peer, for it to fetch
	Taken           // the peer has all of an announcement
	Queued          // a send waits for its peer
	Posted          // a goroutine is about to sleep for a receive
	Received        // a message has come to a receive that waited for it
	Arrived         // a message has come for which there is no receive
	Matched         // a receive has found a message that had arrived
	Fetching        // announced bytes begin to come
	Sleeps          // a goroutine sleeps until an operation is complete
	Wakes           // it goes on
	Collective      // a collective begins; its number is in place of a rank
	Connected       // the channel to a peer is open
	Phase           // this rank sends to a peer in another phase, which is in place of bytes
	Failed          // an operation has failed
	PeerLost        // a peer is given up
	Stopped         // the engine does no more work
	again           // the event before it again, as often as the first word says
	turns           // the two runs before it again in turn, as many runs as the first word says
	kinds
)

// form is how an event is shown: its name, what stands before its rank, and whether it has a tag, a context
// and bytes.
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

// text says what has happened. The names of collectives are in m.
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

// operation is the name of a collective.
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
