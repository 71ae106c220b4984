package match

import "math/bits"

// bin has the receives and messages of one source of one context. The bin of AnySource has the receives from
// any source, and all messages of the context, in the order of arrival.
type bin[P, M any] struct {
	posted     queue[Posted[P]]
	unexpected queue[Message[M]]
}

// bins finds the bin of a context and a source: a hash table with open addressing, at most three quarters
// full. Ranks and contexts are numbers that this job hands out to itself, so the hash needs no secret.
type bins[P, M any] struct {
	slots []slot[P, M] // a power of two, or none yet
	shift int          // leaves the bits of a hash that number the slots
	used  int
	spare []*bin[P, M] // released and empty, for reuse
	last  slot[P, M]   // the latest found: most often it is needed again
}

type slot[P, M any] struct {
	key uint64
	bin *bin[P, M] // nil: the slot is free
}

// minSlots is the size of the first table.
const minSlots = 16

func key(context uint32, source int32) uint64 {
	return uint64(context)<<32 | uint64(uint32(source))
}

func (s slot[P, M]) source() int32 {
	return int32(uint32(s.key))
}

func (s slot[P, M]) context() uint32 {
	return uint32(s.key >> 32)
}

// at returns the index of the key's slot, or of the free slot for it. There must be a free slot.
func (t *bins[P, M]) at(k uint64) int {
	mask := len(t.slots) - 1
	i := int(k * 0x9E3779B97F4A7C15 >> t.shift)
	for t.slots[i].bin != nil && t.slots[i].key != k {
		i = (i + 1) & mask
	}
	return i
}

// find returns the bin, or nil if there is none.
func (t *bins[P, M]) find(context uint32, source int32) *bin[P, M] {
	k := key(context, source)
	if b := t.recent(k); b != nil {
		return b
	}
	return t.search(k)
}

// recent is find for the latest found bin, and returns nil for any other.
func (t *bins[P, M]) recent(k uint64) *bin[P, M] {
	if t.last.key == k {
		return t.last.bin
	}
	return nil
}

func (t *bins[P, M]) search(k uint64) *bin[P, M] {
	if t.used == 0 {
		return nil
	}
	s := t.slots[t.at(k)]
	if s.bin != nil {
		t.last = s
	}
	return s.bin
}

// obtain returns the bin, and makes it if necessary.
func (t *bins[P, M]) obtain(context uint32, source int32) *bin[P, M] {
	if b := t.find(context, source); b != nil {
		return b
	}
	k := key(context, source)
	t.reserve(t.used + 1)
	var b *bin[P, M]
	if last := len(t.spare) - 1; last >= 0 {
		b, t.spare[last] = t.spare[last], nil
		t.spare = t.spare[:last]
	} else {
		b = &bin[P, M]{}
	}
	t.slots[t.at(k)] = slot[P, M]{key: k, bin: b}
	t.used++
	return b
}

// reserve makes room for a total of n bins.
func (t *bins[P, M]) reserve(n int) {
	if 4*n <= 3*len(t.slots) {
		return
	}
	t.rehash(max(minSlots, 1<<bits.Len(uint(4*n/3))))
}

func (t *bins[P, M]) rehash(size int) {
	old := t.slots
	t.slots = make([]slot[P, M], size)
	t.shift = 65 - bits.Len(uint(size))
	for _, s := range old {
		if s.bin != nil {
			t.slots[t.at(s.key)] = s
		}
	}
}

// release removes the empty bins of a context.
func (t *bins[P, M]) release(context uint32) {
	before := t.used
	t.last = slot[P, M]{}
	for i, s := range t.slots {
		if s.bin != nil && s.context() == context && s.bin.posted.length == 0 &&
			s.bin.unexpected.length == 0 {
			t.spare = append(t.spare, s.bin)
			t.slots[i] = slot[P, M]{}
			t.used--
		}
	}
	if t.used < before {
		// A free slot ends the search for a key, so those after one that was freed have to move up.
		t.rehash(len(t.slots))
	}
}
