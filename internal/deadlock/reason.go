package deadlock

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weft-mpi/weft/internal/snapshot"
)

// maxReasons bounds the number of reasons, so that the report of a large job is readable.
const maxReasons = 16

// reasons returns why ranks cannot go on: cycles of ranks that wait for one another, ranks that wait for one
// that has finished, collectives that ranks have not called, or not alike, and messages that have arrived
// while a receive asks for others.
func (j Job) reasons() []string {
	stuck := j.Stuck()
	var reasons []string
	if text := j.notBegun(); text != "" {
		reasons = append(reasons, text)
	}
	reasons = append(reasons, j.later(stuck)...)
	if cycle := j.cycle(stuck); cycle != nil {
		reasons = append(reasons, j.cycleText(cycle))
	}
	for rank, r := range j {
		if r == nil {
			continue
		}
		for i := range r.Waits {
			for k := range r.Waits[i].Ops {
				reasons = j.reasonsFor(reasons, rank, &r.Waits[i], &r.Waits[i].Ops[k], stuck)
			}
		}
	}
	if len(reasons) > maxReasons {
		more := len(reasons) - maxReasons
		reasons = append(reasons[:maxReasons], fmt.Sprintf("(%d more)", more))
	}
	return reasons
}

// later returns texts about ranks that would be stuck if they could not act later.
func (j Job) later(stuck []int) (texts []string) {
	ranks := map[string][]int{}
	for _, rank := range j.stuck(func(*snapshot.Rank) bool { return true }) {
		if _, is := slices.BinarySearch(stuck, rank); !is && j[rank].Later != "" {
			ranks[j[rank].Later] = append(ranks[j[rank].Later], rank)
		}
	}
	for _, how := range slices.Sorted(maps.Keys(ranks)) {
		texts = append(texts, fmt.Sprintf("%s may still act: the program %s", Ranks(ranks[how]), how))
	}
	return texts
}

// notBegun returns which ranks have not called Init while others wait in it.
func (j Job) notBegun() string {
	var missing []int
	for rank, r := range j {
		if r != nil && r.Phase == snapshot.NotBegun {
			missing = append(missing, rank)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	verb := "has"
	if len(missing) > 1 {
		verb = "have"
	}
	return fmt.Sprintf("%s %s not called Init, which other ranks wait in", Ranks(missing), verb)
}

// reasonsFor appends the reasons of one operation, without duplicates.
func (j Job) reasonsFor(reasons []string, rank int, w *snapshot.Wait, o *snapshot.Op, stuck []int) []string {
	add := func(text string) {
		if text != "" && !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	switch o.Kind {
	case snapshot.Collective:
		if o.Name != snapshot.Finalize || !j.needFinished(j.missing(rank, o)) {
			add(j.missingText(rank, o))
		}
		add(j.unlikeText(rank, o, stuck))
		return reasons
	case snapshot.Lock:
		add(j.holderText(rank, w, o))
		return reasons
	}
	if j.needsFinished(o) {
		where := "has finished"
		if j[o.Peer].Phase == snapshot.Finalizing {
			where = "is in Finalize"
		}
		verb := "sends"
		if o.Kind == snapshot.Send {
			verb = "receives"
		}
		add(fmt.Sprintf("rank %d waits in %s: rank %d %s and %s no more", rank, j.describe(rank, w, true),
			o.Peer, where, verb))
	}
	if o.Kind == snapshot.Recv && o.Name == "" {
		add(j.otherMessage(rank, o))
	}
	return reasons
}

// needsFinished reports whether a message needs a rank that sends and receives no more.
func (j Job) needsFinished(o *snapshot.Op) bool {
	return (o.Kind == snapshot.Send || o.Kind == snapshot.Recv) && o.Peer != snapshot.Any &&
		o.Peer < len(j) && j[o.Peer] != nil && !j[o.Peer].Phase.Acts()
}

// needFinished reports whether each of these ranks waits for one that is in Finalize or has finished, so that
// the cause is there.
func (j Job) needFinished(ranks []int) bool {
	for _, rank := range ranks {
		if j[rank] == nil || !slices.ContainsFunc(j[rank].Waits, func(w snapshot.Wait) bool {
			return slices.ContainsFunc(w.Ops, func(o snapshot.Op) bool { return j.needsFinished(&o) })
		}) {
			return false
		}
	}
	return true
}

// otherMessage reports a message that has arrived and is similar to the one that a receive asks for.
func (j Job) otherMessage(rank int, o *snapshot.Op) string {
	for _, m := range j[rank].Unexpected {
		if o.Peer != snapshot.Any && m.From != o.Peer && m.Comm == o.Comm &&
			(o.Tag == snapshot.Any || m.Tag == o.Tag) {
			return fmt.Sprintf("rank %d: a message from %d with tag %d has come; the receive asks for one "+
				"from %d", rank, m.From, m.Tag, o.Peer)
		}
	}
	for _, m := range j[rank].Unexpected {
		if o.Peer != snapshot.Any && m.From != o.Peer {
			continue
		}
		has, asks := fmt.Sprintf("tag %d", m.Tag), fmt.Sprintf("tag %d", o.Tag)
		switch {
		case m.Comm != o.Comm:
			has = fmt.Sprintf("%s on %s", has, j.commName(rank, m.Comm))
			asks = "a message on " + j.commName(rank, o.Comm)
		case o.Tag == snapshot.Any || m.Tag == o.Tag:
			continue
		}
		return fmt.Sprintf("rank %d: a message from %d with %s has come; the receive asks for %s", rank,
			m.From, has, asks)
	}
	return ""
}

// missingText returns which members of a communicator have not called a collective, and where they are
// instead.
func (j Job) missingText(rank int, o *snapshot.Op) string {
	missing := j.missing(rank, o)
	if len(missing) == 0 {
		return ""
	}
	slices.Sort(missing)
	on := ""
	if o.Name != snapshot.Finalize {
		on = " on " + j.commName(rank, o.Comm)
	}
	verb := "has"
	if len(missing) > 1 {
		verb = "have"
	}
	return fmt.Sprintf("%s %s not called %s%s, which other ranks wait in: %s", Ranks(missing), verb, o.Name,
		on, j.whereIs(missing[0]))
}

// holderText returns who has the lock that a rank waits for, and where that rank is.
func (j Job) holderText(rank int, w *snapshot.Wait, o *snapshot.Op) string {
	holders := j.holders(o)
	if len(holders) == 0 {
		return ""
	}
	verb := "has"
	if len(holders) > 1 {
		verb = "have"
	}
	return fmt.Sprintf("rank %d waits in %s, which %s %s locked: %s", rank, j.describe(rank, w, true),
		Ranks(holders), verb, j.whereIs(holders[0]))
}

// whereIs returns where a rank is.
func (j Job) whereIs(rank int) string {
	r := j[rank]
	switch {
	case r == nil:
		return fmt.Sprintf("rank %d does not answer", rank)
	case r.Phase == snapshot.Finished:
		return fmt.Sprintf("rank %d has finished", rank)
	case len(r.Waits) > 0:
		return fmt.Sprintf("rank %d waits in %s", rank, j.describe(rank, &r.Waits[0], true))
	}
	return fmt.Sprintf("rank %d is %s", rank, Doing(r))
}

// mayBeReleasedBy reports whether an operation of a rank may need another rank.
func (j Job) mayBeReleasedBy(rank int, o *snapshot.Op, other int) bool {
	switch {
	case o.Name == snapshot.Finalize:
		return true
	case o.Kind == snapshot.Collective:
		return slices.Contains(o.Needs, other)
	case o.Kind == snapshot.Lock:
		return slices.Contains(j.holders(o), other)
	case o.Peer == snapshot.Any:
		return slices.Contains(j.members(rank, o.Comm), other)
	}
	return o.Peer == other
}

// waitFor returns a wait of a rank that needs another rank.
func (j Job) waitFor(rank, other int) *snapshot.Wait {
	for i := range j[rank].Waits {
		w := &j[rank].Waits[i]
		for k := range w.Ops {
			if j.mayBeReleasedBy(rank, &w.Ops[k], other) {
				return w
			}
		}
	}
	return &j[rank].Waits[0]
}
