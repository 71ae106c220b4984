package pmi

import (
	"fmt"
	"strings"
)

const (
	// maxStored bounds the bytes of keys and values that one rank may put: those of weft put one of some 100
	// bytes.
	maxStored = 1 << 20
	// maxMissing bounds the keys of which is noted that nobody has put them.
	maxMissing = 4096
)

// A KeySpace is one node of the tree that holds a job's key-value space and combines its barriers, without
// I/O. Its members are the ranks of a host, or nodes below it. What members put goes to the node above when
// all of them wait in the barrier, in one message; the node at the top so has all of it. A look-up that a
// node cannot answer goes to the node above, and the answer is kept. What is put is visible everywhere after
// the barrier, and may be visible before it. If two hosts put one key, it depends on the place whose value is
// found.
type KeySpace struct {
	top     bool
	members []member
	waiting int // members in the barrier
	left    int // members that are not waited for any more
	arrived bool

	values      map[string]string
	unsent      []string         // keys and values in turn, put since the node above was last told
	pendingGets map[string][]int // by key: the members that wait for the answer of the node above
	missing     map[string]bool  // keys that the node above did not have since the last barrier
}

type member struct {
	inBarrier, left bool
	stored, limit   int // bytes of the keys and values that it has put, and how many it may
}

// A Step is what follows from a call: messages to members, and to the node above.
type Step struct {
	Released []int // members that leave the barrier
	Answers  []Answer
	Arrived  bool     // the node above is told that all members wait
	Puts     []string // and of these keys and values, in turn
	Find     string   // if not empty: the node above is asked for this key
}

// An Answer is what a member is told about a key.
type Answer struct {
	Member     int
	Key, Value string
	OK         bool // there is such a key
}

// NewKeySpace returns the node over some members, each with so many ranks below it, or which is a rank
// itself.
func NewKeySpace(ranks []int, top bool) *KeySpace {
	s := &KeySpace{
		top: top, members: make([]member, len(ranks)), values: make(map[string]string),
		pendingGets: make(map[string][]int), missing: make(map[string]bool),
	}
	for i, n := range ranks {
		s.members[i].limit = n * maxStored
	}
	return s
}

// Preset files what every node knows from the start.
func (s *KeySpace) Preset(key, value string) { s.values[key] = value }

// Has reports whether the node has a key.
func (s *KeySpace) Has(key string) bool {
	_, ok := s.values[key]
	return ok
}

// Put files what a member has put: keys and values in turn. The first value of a key stays. The error says
// that the member has put more than it may; what is beyond that is not filed.
func (s *KeySpace) Put(from int, pairs []string) error {
	m := &s.members[from]
	for i := 0; i+1 < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		if m.stored+len(key)+len(value) > m.limit {
			return fmt.Errorf("more than %d bytes of keys and values", m.limit)
		}
		m.stored += len(key) + len(value)
		if s.Has(key) {
			continue
		}
		key, value = strings.Clone(key), strings.Clone(value)
		s.values[key] = value
		if !s.top {
			s.unsent = append(s.unsent, key, value)
		}
	}
	return nil
}

// Waits reports whether a member is in the barrier.
func (s *KeySpace) Waits(member int) bool { return s.members[member].inBarrier }

// Waiting is how many members are in the barrier.
func (s *KeySpace) Waiting() int { return s.waiting }

// Arrive has a member wait in the barrier.
func (s *KeySpace) Arrive(member int) Step {
	if m := &s.members[member]; !m.inBarrier && !m.left {
		m.inBarrier = true
		s.waiting++
	}
	return s.pass()
}

// Leave has the barriers pass without a member. The others may have waited for it alone.
func (s *KeySpace) Leave(member int) Step {
	m := &s.members[member]
	if m.left {
		return Step{}
	}
	m.left = true
	s.left++
	if m.inBarrier {
		m.inBarrier = false
		s.waiting--
	}
	return s.pass()
}

// pass lets the members go, or tells the node above, if all have come who can.
func (s *KeySpace) pass() Step {
	switch {
	case s.waiting == 0 || s.waiting < len(s.members)-s.left || s.arrived:
		return Step{}
	case s.top:
		return s.Release()
	}
	s.arrived = true
	step := Step{Arrived: true, Puts: s.unsent}
	s.unsent = nil
	return step
}

// Release is the word of the node above that all ranks of the job wait in the barrier.
func (s *KeySpace) Release() (step Step) {
	for i := range s.members {
		if m := &s.members[i]; m.inBarrier {
			m.inBarrier = false
			step.Released = append(step.Released, i)
		}
	}
	s.waiting, s.arrived = 0, false
	clear(s.missing)
	return step
}

// Find looks a key up for a member.
func (s *KeySpace) Find(member int, key string) Step {
	value, ok := s.values[key]
	if ok || s.top || s.missing[key] {
		return Step{Answers: []Answer{{member, key, value, ok}}}
	}
	first := len(s.pendingGets[key]) == 0
	s.pendingGets[key] = append(s.pendingGets[key], member)
	if !first {
		return Step{}
	}
	return Step{Find: key}
}

// Found is what the node above knows of a key.
func (s *KeySpace) Found(key, value string, ok bool) (step Step) {
	members := s.pendingGets[key]
	if len(members) == 0 {
		return Step{} // nobody has asked
	}
	delete(s.pendingGets, key)
	if own, has := s.values[key]; has {
		value, ok = own, true // put here meanwhile
	} else if ok {
		s.values[key] = value
	} else if len(s.missing) < maxMissing {
		s.missing[key] = true
	}
	for _, m := range members {
		step.Answers = append(step.Answers, Answer{m, key, value, ok})
	}
	return step
}
