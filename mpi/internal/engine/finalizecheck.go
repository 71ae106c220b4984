package engine

import (
	"cmp"
	"slices"
)

// A correct program has received every message and waited for every request when it calls Finalize. This file
// collects the others, for a warning.

// Unfinished counts what a program has not received or not waited for, of one kind with one peer and tag.
type Unfinished struct {
	UnfinishedKey
	Count int
}

// UnfinishedKey tells entries apart.
type UnfinishedKey struct {
	Kind    UnfinishedKind
	Context uint32
	Peer    int // world rank, or AnySource for a receive
	Tag     int // or AnyTag for a receive
}

// UnfinishedKind is what was not done.
type UnfinishedKind uint8

const (
	UnreceivedMessage    UnfinishedKind = iota // a message that was sent to this rank and never received
	UnfinishedSend                             // a send whose request was never waited for
	UnfinishedReceive                          // a receive whose request was never waited for
	UnfinishedCollective                       // a collective whose request was never waited for; of no peer
)

// discardAll drops the messages that no receive has matched, as no receive will be posted any
// more, and from now on those that come. So their sends complete, and no rank waits in Finalize for a
// receive that does not come.
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

// head is the beginning of a message, if it is here.
func (a *unexpectedMessage) head() []byte {
	if len(a.parts) > 0 {
		return a.parts[0].payload
	}
	return nil
}

// discards tells whether a message that no receive has matched is dropped, and notes it if that is because of
// finish. head is the beginning of the message, as far as it is here.
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

// countUnreceived notes a message that the program has not received, unless it could not: receives fail on a
// communicator that was revoked, and where a member has failed they were given up, whoever the sender is.
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

// Unfinished lists what the program has not received or not waited for, in the order of peers. All ranks have
// come through Drain, so what they have sent has arrived; what no pass has taken yet is taken here.
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

// addUnfinished counts those of the endpoint.
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
