package observe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// maxUnfinished is how many entries a warning lists.
const maxUnfinished = 8

// FinalizeWarning returns the line in which Finalize warns of messages and requests that the program has not
// finished, "" for none; open are the epochs that it has not closed.
func FinalizeWarning(rank int, left []engine.Unfinished, open []string) string {
	parts := slices.Clone(open[:min(len(open), maxUnfinished)])
	epochs := len(parts)
	more := 0
	for _, l := range mergeCollectives(left) {
		text := UnfinishedText(l)
		if text == "" {
			continue
		}
		if len(parts) == maxUnfinished {
			more++
			continue
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	text := fmt.Sprintf("weft: warning: rank %d came to Finalize with ", rank) + strings.Join(parts, ", ")
	if more > 0 {
		text += fmt.Sprintf(", and more with %d other peers and tags", more)
	}
	if len(parts) > epochs {
		text += "; WEFT_CHECK=1 names the lines"
	}
	return text + "\n"
}

// mergeCollectives adds up the messages of collectives by sender: their tags mean nothing to the program. It
// omits those messages if the rank has not waited for a collective, which would have received them.
func mergeCollectives(left []engine.Unfinished) (merged []engine.Unfinished) {
	unwaited := slices.ContainsFunc(left, func(l engine.Unfinished) bool {
		return l.Kind == engine.UnfinishedCollective
	})
	for _, l := range left {
		if l.Kind == engine.UnreceivedMessage && contextid.Collective.Is(l.Context) {
			if unwaited {
				continue
			}
			l.Context, l.Tag = contextid.Collective.In(contextid.World), 0
			i := slices.IndexFunc(merged, func(m engine.Unfinished) bool {
				return m.UnfinishedKey == l.UnfinishedKey
			})
			if i >= 0 {
				merged[i].Count += l.Count
				continue
			}
		}
		merged = append(merged, l)
	}
	return merged
}

// UnfinishedText describes one entry. It is "" for requests that are parts of collectives.
func UnfinishedText(l engine.Unfinished) string {
	if l.Kind == engine.UnreceivedMessage && contextid.Collective.Is(l.Context) {
		return fmt.Sprintf("%s of a collective from rank %d never received", plural.Count(l.Count, "message"),
			l.Peer)
	}
	if l.Kind != engine.UnfinishedCollective && !contextid.PointToPoint.Is(l.Context) {
		return ""
	}
	what, direction, state := "message", "from", "never received"
	switch l.Kind {
	case engine.UnfinishedCollective:
		if l.Count == 1 {
			return "1 collective never waited for"
		}
		return fmt.Sprintf("%d collectives never waited for", l.Count)
	case engine.UnfinishedSend:
		what, direction, state = "send", "to", "never waited for"
	case engine.UnfinishedReceive:
		what, direction, state = "receive", "from", "never waited for"
	}
	if l.Count > 1 {
		what += "s"
	}
	peer, tag := fmt.Sprintf("rank %d", l.Peer), fmt.Sprintf("tag %d", l.Tag)
	if l.Peer == engine.AnySource {
		peer = "any rank"
	}
	if l.Tag == engine.AnyTag {
		tag = "any tag"
	}
	return fmt.Sprintf("%d %s %s %s with %s %s", l.Count, what, direction, peer, tag, state)
}
