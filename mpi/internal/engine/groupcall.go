package engine

import "slices"

// GroupCall is a call that several ranks make together, by sends and receives of one tag. When one of the
// ranks fails, the others may abandon the call, each at a different point. So all its pending messages at
// this rank are then cancelled, including those from other ranks, as in a collective.
type GroupCall struct {
	Context uint32
	Tag     int
	Ranks   []int32 // world ranks; nil for all of the communicator

	err error
}

// BeginGroupCall begins a call, before its first message. EndGroupCall ends it, unless this returns an error.
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

// GroupCallErr returns why a call cannot complete: one of its ranks has failed, or the communicator was
// revoked. Messages begun before that end by themselves. Those begun later do not: check this after beginning
// them.
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

// endGroupCalls cancels the messages of the calls that which selects.
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

// tag returns the tag of a send or a receive.
func (r *request) tag() int {
	if r.kind == kindSend {
		return int(r.msg.Tag)
	}
	return int(r.posted.Tag)
}
