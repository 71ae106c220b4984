package mpi

import (
	"fmt"
	"strings"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// maxLeftovers is how many kinds of leftovers a warning lists.
const maxLeftovers = 8

// leftoverWarning is the line with which Finalize warns of what the program has left over, "" if that is
// nothing. What the collectives have among them is not the program's.
func leftoverWarning(rank int, left []engine.Leftover) string {
	var parts []string
	more := 0
	for _, l := range left {
		if l.Context%contextsPerComm != pointToPoint {
			continue
		}
		if len(parts) == maxLeftovers {
			more++
			continue
		}
		parts = append(parts, leftoverText(l))
	}
	if len(parts) == 0 {
		return ""
	}
	text := fmt.Sprintf("weft: warning: rank %d came to Finalize with ", rank) + strings.Join(parts, ", ")
	if more > 0 {
		text += fmt.Sprintf(", and more with %d other peers and tags", more)
	}
	return text + "\n"
}

func leftoverText(l engine.Leftover) string {
	what, direction, state := "message", "from", "never received"
	switch l.Kind {
	case engine.LeftoverSend:
		what, direction, state = "send", "to", "never waited for"
	case engine.LeftoverReceive:
		what, direction, state = "receive", "from", "never waited for"
	}
	if l.Count > 1 {
		what += "s"
	}
	peer, tag := fmt.Sprintf("rank %d", l.Peer), fmt.Sprintf("tag %d", l.Tag)
	if l.Peer == AnySource {
		peer = "any rank"
	}
	if l.Tag == AnyTag {
		tag = "any tag"
	}
	return fmt.Sprintf("%d %s %s %s with %s %s", l.Count, what, direction, peer, tag, state)
}
