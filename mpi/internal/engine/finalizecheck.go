package engine

import (
	"cmp"
	"slices"
)

// A correct program has received every message and waited for every request when it calls Finalize. This file
// collects the exceptions, for a warning.

// Unfinished counts the messages that a program has not received, or the requests that it has not waited for,
// of one kind, peer and tag.
type Unfinished struct {
	UnfinishedKey
	Count int
}

// UnfinishedKey identifies an Unfinished.
type UnfinishedKey struct {
	Kind    UnfinishedKind
	Context uint32
	Peer    int // world rank, or AnySource for a receive
	Tag     int // or AnyTag for a receive
}

// UnfinishedKind is the kind of an Unfinished.
type UnfinishedKind uint8

const (
	UnreceivedMessage    UnfinishedKind = iota // a message that was sent to this rank and never received
	UnfinishedSend                             // a send whose request was never waited for
	UnfinishedReceive                          // a receive whose request was never waited for
	UnfinishedCollective                       // a collective whose request was never waited for; no peer
)

// discardAll drops all unexpected messages, and from now on those that arrive without a receive, since no
// more receives will be posted. So their sends complete, and no rank waits in Finalize for such a receive.
func (u *unexpectedMessages) discardAll() {
	u.unfinished = map[UnfinishedKey]int{}
	for m := range u.e.matching.Unexpected() {
		u.countUnreceived(m.Context, int(m.Source), m.Tag, m.Value.head())
	}
	u.discardWhere(func(uint32) bool { return true })
	for len(u.e.Probes.messages) > 0 {
		a := u.e.Probes.messages[0]
		u.countUnreceived(a.match.Context, int(a.match.Source), a.match.Tag, a.head())
		u.e.Probes.remove(a)
		if a.fetch == nil {
			u.discard(a)
		}
	}
}

// head returns the beginning of a message, if it has arrived.
func (a *unexpectedMessage) head() []byte {
	if len(a.parts) > 0 {
		return a.parts[0].payload
	}
	return nil
}

// discards reports whether a message that no receive has matched is dropped. It counts the message if that is
// because of discardAll. head is the part of its beginning that has arrived.
func (u *unexpectedMessages) discards(env envelope, source int, head []byte) bool {
	if u.abandoned(env.Context) {
		return true
	}
	if u.unfinished == nil {
		return false
	}
	u.countUnreceived(env.Context, source, env.Tag, head)
	return true
}

// countUnreceived counts a message that the program has not received. It ignores messages that the program
// could not have received: those on a revoked communicator, or on one with a failed member.
func (u *unexpectedMessages) countUnreceived(context uint32, source int, tag int32, head []byte) {
	if u.freedContexts.has(context) || u.e.Recovery.revokedErr(context) != nil ||
		u.e.failures.since(0, context) != nil {
		return
	}
	u.unfinished[UnfinishedKey{UnreceivedMessage, context, source, int(tag)}]++
	if u.unreceived != nil {
		u.unreceived(context, source, int(tag), head)
	}
}

// Unfinished lists the messages that the program has not received and the requests that it has not waited
// for, by peer. All ranks have completed Drain, so all messages have arrived; passes take the rest here.
func (h *Hub) Unfinished() (list []Unfinished) {
	all := map[UnfinishedKey]int{}
	for e := range h.each() {
		e.addUnfinished(all)
	}
	for k, n := range all {
		list = append(list, Unfinished{k, n})
	}
	slices.SortFunc(list, func(a, b Unfinished) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Tag, b.Tag),
			cmp.Compare(a.Context, b.Context))
	})
	return list
}

// addUnfinished adds those of the endpoint.
func (e *Engine) addUnfinished(all map[UnfinishedKey]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.stopped == nil && e.progress.poll() {
	}
	for k, n := range e.unexpected.unfinished {
		all[k] += n
	}
	for r := range e.Requests.uncollected() {
		switch r.kind {
		case kindRecv:
			all[UnfinishedKey{UnfinishedReceive, r.posted.Context, r.rank, int(r.posted.Tag)}]++
		case kindSend:
			all[UnfinishedKey{UnfinishedSend, r.msg.Context, r.rank, int(r.msg.Tag)}]++
		case kindCollective:
			all[UnfinishedKey{Kind: UnfinishedCollective}]++
		}
	}
}
