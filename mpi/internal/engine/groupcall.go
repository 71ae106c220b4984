package engine

import "slices"

// GroupCall is a call that ranks make together, by sends and receives of their own with one tag. When one of
// the ranks fails, the others may give the call up, each at another point. So its messages end then, from
// whichever rank they are to come, as those of a collective do.
type GroupCall struct {
	Context uint32
	Tag     int
	Ranks   []int32 // world ranks; nil for all of the communicator

	err error
}

// BeginGroupCall begins a call, before its first message. After an error nothing is to be ended.
func (v *Recovery) BeginGroupCall(g *GroupCall) error {
	e := v.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if g.err = v.revokedErr(g.Context); g.err == nil {
		for _, p := range e.failures.peers {
			if v.takesPart(g, p.rank) {
				g.err = p.cause
				break
			}
		}
	}
	if g.err == nil {
		v.groupCalls = append(v.groupCalls, g)
	}
	return g.err
}

// EndGroupCall ends what BeginGroupCall began.
func (v *Recovery) EndGroupCall(g *GroupCall) {
	e := v.e
	e.mu.Lock()
	defer e.mu.Unlock()
	v.groupCalls = remove(v.groupCalls, g)
	e.unexpected.discardFreed(g.Context)
}

// GroupCallErr is why a call cannot come to its end: a rank of it has failed, or the communicator was
// revoked. Messages that were begun before that end by themselves. Those that are begun later do not: look
// at this after their beginning.
func (v *Recovery) GroupCallErr(g *GroupCall) error {
	e := v.e
	e.mu.Lock()
	defer e.mu.Unlock()
	return g.err
}

func (v *Recovery) takesPart(g *GroupCall, rank int) bool {
	if g.Ranks == nil {
		return v.e.failures.inContext(g.Context, rank)
	}
	return slices.Contains(g.Ranks, int32(rank))
}

// endGroupCalls ends the messages of calls.
func (v *Recovery) endGroupCalls(err error, which func(g *GroupCall) bool) {
	for _, g := range v.groupCalls {
		if g.err != nil || !which(g) {
			continue
		}
		g.err = err
		for r := range v.e.Requests.underWay() {
			context, ok := r.context()
			if ok && context == g.Context && r.collective == nil && r.tag() == g.Tag {
				v.e.Cancels.cancelLocked(r, err)
			}
		}
	}
}

// tag is that of a send or a receive.
func (r *request) tag() int {
	if r.kind == kindSend {
		return int(r.msg.Tag)
	}
	return int(r.posted.Tag)
}
