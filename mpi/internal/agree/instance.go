package agree

// Send is a message to be sent.
type Send struct {
	To int // index of the member
	Message
}

// instance is one agreement at one member.
//
// Invariants: ballot is the tree's root. All recorded messages, received and sent, belong to this ballot. A
// member accepts only values of its ballot, so it keeps the promise of its UP. It commits only when every
// member that has not failed has accepted the decision.
type instance struct {
	number uint32
	self   int
	tree   *tree // shared by the instances of a communicator
	ballot int

	started bool  // the member has contributed
	own     Value // its contribution

	called   map[int]bool // members that were sent NEWER
	heard    map[int]bool // members whose UP has arrived
	combined Value        // contributions so far
	prior    accepted     // the value of the highest ballot that this member or one below has accepted
	upTo     int          // the member to which UP was sent; -1 for none yet

	accepted accepted // the last value that this member has accepted, in any ballot
	proposed bool     // accepted is of this ballot
	acked    map[int]bool
	ackSent  bool // to upTo, or by the root to itself
	told     map[int]bool

	committed bool
	decision  Value
}

// accepted is a value with its ballot.
type accepted struct {
	some   bool
	ballot int
	value  Value
}

func newInstance(number uint32, self int, t *tree) *instance {
	in := &instance{number: number, self: self, tree: t}
	in.newBallot()
	return in
}

// newBallot begins again under the new root.
func (in *instance) newBallot() {
	in.ballot = in.tree.root
	in.heard, in.acked, in.told, in.called = map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	in.combined, in.prior = Neutral, in.accepted
	in.upTo, in.proposed, in.ackSent = -1, false, false
	if in.started {
		in.combined.combine(&in.own)
	}
}

// start adds this member's contribution.
func (in *instance) start(out []Send, v Value) []Send {
	in.started, in.own = true, v
	in.combined.combine(&v)
	return in.advance(out)
}

// receive handles a message of this ballot from a member that has not failed.
func (in *instance) receive(out []Send, from int, m *Message) []Send {
	if m.Kind == Commit {
		return in.commit(out, from, m.Value)
	}
	if in.committed {
		if m.Kind == Up || m.Kind == Ack || m.Kind == Propose {
			return in.send(out, from, Commit, in.decision)
		}
		return out
	}
	switch m.Kind {
	case Up:
		in.heard[from] = true
		if !m.HasAccepted {
			in.combined.combine(&m.Value)
		} else if !in.prior.some || int(m.Accepted) > in.prior.ballot {
			in.prior = accepted{true, int(m.Accepted), m.Value}
		}
	case Propose:
		if !in.started || in.upTo < 0 {
			return out // a root proposes only when every member has promised
		}
		if !in.proposed {
			in.accept(m.Value)
		}
	case Ack:
		in.acked[from] = true
	}
	return in.advance(out)
}

func (in *instance) accept(v Value) {
	in.proposed, in.accepted = true, accepted{true, in.ballot, v}
}

// advance sends the messages that are due.
func (in *instance) advance(out []Send) []Send {
	if !in.started || in.committed {
		return out
	}
	below := in.tree.children(in.self)
	root := in.self == in.ballot
	if in.upTo < 0 && allIn(in.heard, below) {
		if !root {
			in.upTo = in.tree.parent(in.self)
			return in.sendUp(out)
		}
		in.upTo = in.self
		if in.prior.some {
			in.accept(in.prior.value)
		} else {
			in.accept(in.combined)
		}
	}
	if !in.proposed {
		return out
	}
	for _, c := range below {
		if !in.told[c] {
			in.told[c] = true
			out = in.send(out, c, Propose, in.accepted.value)
		}
	}
	if in.ackSent || !allIn(in.acked, below) {
		return out
	}
	in.ackSent = true
	if root {
		return in.commit(out, in.self, in.accepted.value)
	}
	return in.send(out, in.upTo, Ack, Value{})
}

// sendUp sends UP to the member above, followed by ACK if another member has already been sent one.
func (in *instance) sendUp(out []Send) []Send {
	m := Message{Instance: in.number, Kind: Up, Ballot: uint32(in.ballot), Value: in.combined}
	if in.prior.some {
		m.HasAccepted, m.Accepted, m.Value = true, uint32(in.prior.ballot), in.prior.value
	}
	out = append(out, Send{in.upTo, m})
	if in.ackSent {
		out = in.send(out, in.upTo, Ack, Value{})
	}
	return out
}

// commit ends the agreement, and informs the neighbors in the tree.
func (in *instance) commit(out []Send, from int, v Value) []Send {
	if in.committed {
		return out
	}
	in.committed, in.decision = true, v
	in.told = map[int]bool{from: true}
	return in.spread(out)
}

// spread sends the decision to the neighbors in the tree that do not have it yet. The member above has it,
// unless it took that place after a failure.
func (in *instance) spread(out []Send) []Send {
	near := in.tree.children(in.self)
	if above := in.tree.parent(in.self); above >= 0 {
		near = append(near, above)
	}
	for _, i := range near {
		if !in.told[i] {
			in.told[i] = true
			out = in.send(out, i, Commit, in.decision)
		}
	}
	return out
}

// failure reacts to failures that the tree already knows.
func (in *instance) failure(out []Send) []Send {
	if in.committed {
		in.ballot = in.tree.root
		return in.spread(out)
	}
	if in.tree.root != in.ballot {
		in.newBallot()
		return in.advance(in.callBallot(out))
	}
	out = in.callBallot(out)
	if above := in.tree.parent(in.self); in.upTo >= 0 && above >= 0 && above != in.upTo {
		in.upTo = above
		out = in.sendUp(out)
	}
	return in.advance(out)
}

// callBallot tells the members below of the ballot, if it is not the first. They wait for this member, which
// has not failed, and may not learn of the root's failure in another way.
func (in *instance) callBallot(out []Send) []Send {
	if in.ballot == 0 {
		return out
	}
	for _, c := range in.tree.children(in.self) {
		if !in.heard[c] && !in.called[c] {
			in.called[c] = true
			out = in.send(out, c, Newer, Value{})
		}
	}
	return out
}

func (in *instance) send(out []Send, to int, k Kind, v Value) []Send {
	return append(out, Send{to, Message{Instance: in.number, Kind: k, Ballot: uint32(in.ballot), Value: v}})
}

func allIn(set map[int]bool, list []int) bool {
	for _, i := range list {
		if !set[i] {
			return false
		}
	}
	return true
}
