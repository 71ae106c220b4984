package agree

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Table is the agreements of one communicator at one member, and what it knows of failed members.
//
// Invariant: a member begins an agreement when it has returned from the one before. So once a value is
// proposed in an agreement, everybody has returned from those before it, and they are forgotten.
type Table struct {
	self      int
	tree      tree
	instances map[uint32]*instance
	next      uint32 // the number of the agreement that this member begins next
	excluded  bool   // another member takes this one for failed
	history   uint64 // before the latest agreement that this member has begun; 0 if it is not known
	teller    int    // who told this member the latest decision that it was told; -1 for nobody
	misled    *Misled
}

// Misled says that the member above has had other decisions than this one was told: this one cannot go on.
type Misled struct{ By, Above int }

// NewTable makes the table of member self of size members.
func NewTable(self, size int) *Table {
	return &Table{self: self, tree: tree{failed: make([]bool, size)}, instances: map[uint32]*instance{},
		teller: -1}
}

// Start contributes to the next agreement, whose number it returns.
func (t *Table) Start(v Value) (number uint32, out []Send) {
	number = t.next
	t.history = t.historyBefore(number)
	t.next++
	in := t.instance(number)
	return number, t.seal(t.forget(in.start(nil, v)))
}

// Decision is the value of an agreement, once it is decided.
func (t *Table) Decision(number uint32) (v Value, ok bool) {
	in := t.instances[number]
	if in == nil || !in.committed {
		return Value{}, false
	}
	return in.decision, true
}

// Excluded reports whether other members take this one for failed: it can take part in nothing any more.
func (t *Table) Excluded() bool { return t.excluded }

// Failed lists the members that are known to have failed.
func (t *Table) Failed() []int {
	var list []int
	for i, f := range t.tree.failed {
		if f {
			list = append(list, i)
		}
	}
	return list
}

// AwaitedFrom lists the members from whom this one waits for a message, for which it needs a connection to
// learn of their failure.
func (t *Table) AwaitedFrom(number uint32) []int {
	in := t.instances[number]
	if in == nil || in.committed {
		return nil
	}
	list := t.tree.children(t.self)
	if above := t.tree.parent(t.self); above >= 0 {
		list = append(list, above)
	}
	return list
}

// Fail takes note of a failed member.
func (t *Table) Fail(i int) (out []Send) {
	if t.tree.failed[i] || i == t.self {
		return nil
	}
	t.tree.fail(i)
	for number := range t.instances {
		out = t.instances[number].failure(out)
	}
	return t.seal(t.forget(out))
}

// Unknown reports whether a message says of a member that it has failed, and this one does not know that: by
// its ballot, or by the set of a value, in communicators of no more members than a set has elements.
func (t *Table) Unknown(m *Message) bool {
	size := len(t.tree.failed)
	if int(m.Ballot) > t.tree.root && int(m.Ballot) < size {
		return true
	}
	for i := range size {
		if size <= SetSize && m.Kind.hasValue() && m.Value.Has(i) && !t.tree.failed[i] {
			return true
		}
	}
	return false
}

// Receive takes a message. An error is a violation of the protocol by its sender.
func (t *Table) Receive(from int, m *Message) (out []Send, err error) {
	if int(m.Ballot) >= len(t.tree.failed) || int(m.Accepted) >= len(t.tree.failed) {
		return nil, fmt.Errorf("%v of an agreement of %d members in ballot %d", m.Kind, len(t.tree.failed),
			m.Ballot)
	}
	if m.Instance > t.next {
		return nil, fmt.Errorf("%v of agreement %d, and this rank has begun %d", m.Kind, m.Instance, t.next)
	}
	if t.tree.failed[from] {
		return nil, nil
	}
	if int(m.Ballot) > t.self {
		t.excluded = true
		return nil, nil
	}
	for i := t.tree.root; i < int(m.Ballot); i++ {
		out = append(out, t.Fail(i)...)
	}
	if t.contradicts(m) {
		switch {
		case from != t.tree.parent(t.self):
			if m.Kind != Newer { // by this it learns, if it is below, that it was misled
				out = append(out, Send{from, Message{Instance: m.Instance, Kind: Newer,
					Ballot: uint32(t.tree.root)}})
			}
		case from == t.teller || t.teller < 0:
			return nil, fmt.Errorf("%v of agreement %d contradicts the decisions that there were before",
				m.Kind, m.Instance)
		default:
			t.misled = &Misled{By: t.teller, Above: from}
		}
		return t.seal(out), nil
	}
	if m.Kind == Newer || t.instances[m.Instance] == nil && m.Instance < t.next {
		return out, nil
	}
	in := t.instance(m.Instance)
	if int(m.Ballot) < t.tree.root && m.Kind != Commit && !in.committed {
		return t.seal(in.send(out, from, Newer, Value{})), nil
	}
	if m.Kind == Commit && !in.started {
		t.excluded = true // nothing is decided without this member, unless others take it for failed
		return nil, nil
	}
	before := in.committed
	out = in.receive(out, from, m)
	if in.committed && !before && m.Kind == Commit {
		t.teller = from
	}
	return t.seal(t.forget(out)), nil
}

// contradicts reports whether the sender of a message has had other decisions than this member.
func (t *Table) contradicts(m *Message) bool {
	if mine := t.historyBefore(m.Instance); mine != 0 && m.History != 0 && m.History != mine {
		return true
	}
	in := t.instances[m.Instance]
	return m.Kind == Commit && in != nil && in.committed && in.decision != m.Value
}

// beginning is the history of members that have decided nothing.
const beginning = 1

// historyBefore is the history of this member before an agreement: equal at all members that have had the
// same decisions. It is 0 where it is not known: of agreements that are over, and after one that a member has
// left before it was decided.
func (t *Table) historyBefore(number uint32) uint64 {
	switch {
	case number == t.next-1:
		return t.history
	case number != t.next:
		return 0
	case number == 0:
		return beginning
	}
	in := t.instances[number-1]
	if in == nil || !in.committed || t.history == 0 {
		return 0
	}
	b := in.decision.append(binary.LittleEndian.AppendUint64(nil, t.history))
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:]) | 1
}

// seal puts the history of this member into what it sends.
func (t *Table) seal(out []Send) []Send {
	for i := range out {
		out[i].History = t.historyBefore(out[i].Instance)
	}
	return out
}

// Misled reports whether this member was told other decisions than the one above, and by whom; nil if not.
func (t *Table) Misled() *Misled { return t.misled }

func (t *Table) instance(number uint32) *instance {
	in := t.instances[number]
	if in == nil {
		in = newInstance(number, t.self, &t.tree)
		t.instances[number] = in
	}
	return in
}

// forget drops agreements before one in which a value is proposed.
func (t *Table) forget(out []Send) []Send {
	for number, in := range t.instances {
		if in.proposed || in.committed {
			for old := range t.instances {
				if old < number {
					delete(t.instances, old)
				}
			}
		}
	}
	return out
}
