package agree

// SetSize is the number of elements of a Value's set. A message must fit the smallest slot.
const SetSize = 256

// Value is a contribution, and the agreed result. The result combines the contributions of all members that
// have not failed, and of some that have.
type Value struct {
	And uint64               // by bitwise and
	Max uint64               // by maximum
	Set [SetSize / 64]uint64 // a set, by union
}

// Neutral is the contribution that does not change the result.
var Neutral = Value{And: ^uint64(0)}

// Add puts an element in the set.
func (v *Value) Add(i int) { v.Set[i/64] |= 1 << (i % 64) }

// Has reports whether an element is in the set.
func (v *Value) Has(i int) bool { return v.Set[i/64]>>(i%64)&1 != 0 }

// combine adds a contribution. It is commutative, associative and idempotent, so a contribution may arrive
// twice.
func (v *Value) combine(w *Value) {
	v.And &= w.And
	v.Max = max(v.Max, w.Max)
	for i := range v.Set {
		v.Set[i] |= w.Set[i]
	}
}
