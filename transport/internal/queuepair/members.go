package queuepair

import "slices"

// Members are the queue pairs that a pass over a completion queue drives.
type Members[Q interface {
	comparable
	Core() *QP
}] []Q

// Add adds a queue pair. It returns false for one that has ended or is already a member.
func (m *Members[Q]) Add(q Q) bool {
	if q.Core().Ended() || slices.Contains(*m, q) {
		return false
	}
	*m = append(*m, q)
	return true
}

// Remove removes a queue pair, and reports whether it was a member.
func (m *Members[Q]) Remove(q Q) bool {
	i := slices.Index(*m, q)
	if i >= 0 {
		*m = slices.Delete(*m, i, i+1)
	}
	return i >= 0
}

// Step returns the step from the i-th member, q, to the next in a loop: 0 if q has ended, because the next
// one has taken its place.
func (m Members[Q]) Step(i int, q Q) int {
	if i < len(m) && m[i] == q {
		return 1
	}
	return 0
}

// Each yields the members. They may end meanwhile.
func (m Members[Q]) Each(yield func(*QP) bool) {
	for _, q := range slices.Clone(m) {
		if !yield(q.Core()) {
			return
		}
	}
}
