package engine

import (
	"cmp"
	"maps"
	"slices"
)

// A program that is right has received every message and waited for every request when it comes to Finalize.
// What it has not is collected here, for a warning.

// Leftover is what a program has left over, of one kind with one peer and tag.
type Leftover struct {
	LeftoverKey
	Count int
}

// LeftoverKey tells leftovers apart.
type LeftoverKey struct {
	Kind    LeftoverKind
	Context uint32
	Peer    int // world rank, or AnySource for a receive
	Tag     int // or AnyTag for a receive
}

// LeftoverKind is what was left over.
type LeftoverKind uint8

const (
	LeftoverMessage LeftoverKind = iota // a message that was sent to this rank and never received
	LeftoverSend                        // a send whose request was never waited for
	LeftoverReceive                     // a receive whose request was never waited for
)

// discardAllUnexpected drops the messages that no receive has matched, as no receive will be posted any
// more, and from now on those that come. So their sends complete, and no rank waits in Finalize for a
// receive that does not come.
func (u *unexpectedMessages) discardAll() {
	u.leftovers = map[LeftoverKey]int{}
	for m := range u.e.matching.Unexpected() {
		u.countLeftover(m.Context, int(m.Source), m.Tag)
	}
	u.discardWhere(func(uint32) bool { return true })
	for len(u.e.probes.messages) > 0 {
		a := u.e.probes.messages[0]
		u.countLeftover(a.match.Context, int(a.match.Source), a.match.Tag)
		u.e.probes.remove(a)
		if a.fetch == nil {
			u.discard(a)
		}
	}
}

// discards tells whether a message that no receive has matched is dropped, and notes it if that is because of
// finish.
func (u *unexpectedMessages) discards(env envelope, source int) bool {
	if u.freedContexts.has(env.Context) {
		return true
	}
	if u.leftovers == nil {
		return false
	}
	u.countLeftover(env.Context, source, env.Tag)
	return true
}

func (u *unexpectedMessages) countLeftover(context uint32, source int, tag int32) {
	if !u.freedContexts.has(context) {
		u.leftovers[LeftoverKey{LeftoverMessage, context, source, int(tag)}]++
	}
}

// Leftovers tells what the program has left over, after Drain, in the order of peers.
func (e *Engine) Leftovers() []Leftover {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := maps.Clone(e.unexpected.leftovers)
	if all == nil {
		all = map[LeftoverKey]int{}
	}
	for r := range e.requests.uncollected() {
		if r.kind == kindRecv {
			all[LeftoverKey{LeftoverReceive, r.posted.Context, r.rank, int(r.posted.Tag)}]++
		} else {
			all[LeftoverKey{LeftoverSend, r.msg.Context, r.rank, int(r.msg.Tag)}]++
		}
	}
	var list []Leftover
	for k, n := range all {
		list = append(list, Leftover{k, n})
	}
	slices.SortFunc(list, func(a, b Leftover) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Tag, b.Tag),
			cmp.Compare(a.Context, b.Context))
	})
	return list
}
