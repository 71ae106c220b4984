package engine

import "slices"

// SetGroup tells which world ranks a context is of, where it is not all of the world: only their failure concerns receives and probes from
// any source. It holds until Release. The slice is not copied.
func (e *Engine) SetGroup(context uint32, ranks []int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.groups[context] = ranks
}

func (e *Engine) inGroup(context uint32, rank int) bool {
	ranks, some := e.groups[context]
	return !some || slices.Contains(ranks, int32(rank))
}

// failedSince is the failure of a rank of the context among those after the first n failures; nil if there was none.
func (e *Engine) failedSince(n int, context uint32) error {
	for _, p := range e.failed[n:] {
		if e.inGroup(context, p.rank) {
			return p.cause
		}
	}
	return nil
}

// nobodyLeft is the failure of a rank of the context if all others of it have failed too: nobody could answer a receive from any source but
// this rank itself, which does not ask itself so.
func (e *Engine) nobodyLeft(context uint32) error {
	if len(e.failed) == 0 {
		return nil
	}
	left := e.size
	if ranks, some := e.groups[context]; some {
		left = len(ranks)
	}
	for _, p := range e.failed {
		if e.inGroup(context, p.rank) {
			left--
		}
	}
	if left > 1 {
		return nil
	}
	return e.failedSince(0, context)
}
