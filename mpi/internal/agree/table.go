package agree

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Table holds the agreements of one communicator at one member, and the failed members that it knows.
//
// Invariant: a member begins an agreement only after it has returned from the one before. So once a value is
// proposed in an agreement, every member has returned from the earlier ones, and they are forgotten.
type Table struct {
	self      int
	tree      tree
	instances map[uint32]*instance
	next      uint32 // number of the next agreement that this member begins
	excluded  bool   // another member considers this one failed
	history   uint64 // before the latest agreement that this member has begun; 0 if unknown
	teller    int    // the member that sent the latest decision; -1 for none
	misled    *Misled
}

// Misled reports that the member above had other decisions than By told this member, which cannot go on.
type Misled struct{ By, Above int }

// NewTable returns the table of member self of size members.
func NewTable(self, size int) *Table {
	return &Table{self: self, tree: tree{failed: make([]bool, size)}, instances: map[uint32]*instance{},
		teller: -1}
}

// Start contributes to the next agreement and returns its number.
func (t *Table) Start(v Value) (number uint32, out []Send) {
	number = t.next
	t.history = t.historyBefore(number)
	t.next++
	in := t.instance(number)
	return number, t.seal(t.forget(in.start(nil, v)))
}

// Decision returns the value of an agreement, once it is decided.
func (t *Table) Decision(number uint32) (v Value, ok bool) {
	in := t.instances[number]
	if in == nil || !in.committed {
		return Value{}, false
	}
	return in.decision, true
}

// Excluded reports whether other members consider this one failed: it cannot take part in agreements any
// more.
func (t *Table) Excluded() bool { return t.excluded }

// Failed returns the members that are known to have failed.
func (t *Table) Failed() []int {
	var list []int
	for i, f := range t.tree.failed {
		if f {
			list = append(list, i)
		}
	}
	return list
}

// AwaitedFrom returns the members that this one may wait for. It needs connections to them to learn of their
// failure.
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

// Fail records a failed member.
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

// Unknown reports whether a message tells of a failure that this member does not know: by its ballot, or by
// the set of a value, in communicators of no more members than a set has elements.
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

// Receive handles a message. An error means that the sender has violated the protocol.
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
			if m.Kind != Newer { // tells a member below that it was misled
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
		t.excluded = true // nothing is decided without this member unless others consider it failed
		return nil, nil
	}
	before := in.committed
	out = in.receive(out, from, m)
	if in.committed && !before && m.Kind == Commit {
		t.teller = from
	}
	return t.seal(t.forget(out)), nil
}

// contradicts reports whether the sender of a message had other decisions than this member.
func (t *Table) contradicts(m *Message) bool {
	if mine := t.historyBefore(m.Instance); mine != 0 && m.History != 0 && m.History != mine {
		return true
	}
	in := t.instances[m.Instance]
	return m.Kind == Commit && in != nil && in.committed && in.decision != m.Value
}

// beginning is the history before the first decision.
const beginning = 1

// historyBefore returns the history of this member before an agreement, a hash that is equal at all members
// with the same decisions. It is 0 if unknown: for agreements that are over, and after one that the member
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

// seal sets the history of outgoing messages.
func (t *Table) seal(out []Send) []Send {
	for i := range out {
		out[i].History = t.historyBefore(out[i].Instance)
	}
	return out
}

// Misled returns who told this member other decisions than the member above had; nil if nobody did.
func (t *Table) Misled() *Misled { return t.misled }

func (t *Table) instance(number uint32) *instance {
	in := t.instances[number]
	if in == nil {
		in = newInstance(number, t.self, &t.tree)
		t.instances[number] = in
	}
	return in
}

// forget drops the agreements before one in which a value is proposed.
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
