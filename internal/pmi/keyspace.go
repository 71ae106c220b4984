package pmi

import (
	"fmt"
	"strings"
)

const (
	// maxStored bounds the bytes of keys and values that one rank may put. A weft rank puts one of about 100
	// bytes.
	maxStored = 1 << 20
	// maxMissing bounds the keys that are remembered as missing.
	maxMissing = 4096
)

// A KeySpace is one node of the tree that holds a job's key-value space and combines its barriers, without
// I/O. Its members are the ranks of a host, or nodes below it. When all members wait in the barrier, their
// puts go to the node above in one message, so the top node has all keys. A look-up that a node cannot answer
// goes to the node above, and the answer is cached. A put is visible everywhere after the barrier, and may be
// visible before it. If two hosts put the same key, the value found depends on the place.
type KeySpace struct {
	top     bool
	members []member
	waiting int // members in the barrier
	left    int // members that barriers do not wait for any more
	arrived bool

	values      map[string]string
	unsent      []string         // keys and values in turn, put since the node above was last told
	pendingGets map[string][]int // by key: members that wait for the answer of the node above
	missing     map[string]bool  // keys that the node above did not have since the last barrier
}

type member struct {
	inBarrier, left bool
	stored, limit   int // bytes of the keys and values that it has put, and their limit
}

// A Step is the result of a call: messages to members, and to the node above.
type Step struct {
	Released []int // members that leave the barrier
	Answers  []Answer
	Arrived  bool     // tell the node above that all members wait
	Puts     []string // and these keys and values, in turn
	Find     string   // if not empty: ask the node above for this key
}

// An Answer is the answer to a member's look-up.
type Answer struct {
	Member     int
	Key, Value string
	OK         bool // the key exists
}

// NewKeySpace returns the node over some members. ranks has the number of ranks of each, 1 for a rank.
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

// Preset stores a pair that every node knows from the start.
func (s *KeySpace) Preset(key, value string) { s.values[key] = value }

// Has reports whether the node has a key.
func (s *KeySpace) Has(key string) bool {
	_, ok := s.values[key]
	return ok
}

// Known returns the value of a key that the node has.
func (s *KeySpace) Known(key string) (value string, ok bool) {
	value, ok = s.values[key]
	return value, ok
}

// Put stores a member's keys and values, in turn. The first value of a key stays. It returns an error if the
// member exceeds its limit; pairs beyond that are not stored.
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

// Waiting returns the number of members in the barrier.
func (s *KeySpace) Waiting() int { return s.waiting }

// Arrive adds a member to the barrier.
func (s *KeySpace) Arrive(member int) Step {
	if m := &s.members[member]; !m.inBarrier && !m.left {
		m.inBarrier = true
		s.waiting++
	}
	return s.pass()
}

// Leave makes barriers pass without a member. This may complete a barrier.
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

// pass releases the members, or tells the node above, if all remaining members wait.
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

// Release handles the node above's message that all ranks of the job wait in the barrier.
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

// Found handles the node above's answer about a key.
func (s *KeySpace) Found(key, value string, ok bool) (step Step) {
	members := s.pendingGets[key]
	if len(members) == 0 {
		return Step{} // no member has asked
	}
	delete(s.pendingGets, key)
	if own, has := s.values[key]; has {
		value, ok = own, true // a member has put it meanwhile
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
