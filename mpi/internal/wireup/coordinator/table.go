package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// state is the state of a rank.
type state uint8

const (
	absent   state = iota // has not come, or has left before the start; its hello leads to present
	present               // has come. The farewell leads to finished, the end of its connection to gone
	waiting               // is in the barrier; its release leads to present
	finished              // has said farewell
	gone                  // its connection has ended without a farewell
)

// A member is rank 0's record of a rank.
type member struct {
	state
	hello
	stored   int    // bytes put
	hasLost  bool   // it has reported the loss of a peer
	lostPeer uint32 // the first of them
}

// A table is the logic of rank 0's side, without I/O: events go in, messages to send come out.
type table struct {
	job     string
	members []member
	kvs     map[string]string
	address string // of rank 0's host, as other hosts reach it; empty before a rank of another host has come
	started bool
	survive bool    // the job goes on when a rank is lost
	over    bool    // the job has ended or failed; no more messages
	failure message // why it has failed, also for ranks that come later; kind 0 if it has not
}

// A delivery is a message to a rank.
type delivery struct {
	rank uint32
	message
}

// final reports whether a message is the last one of the job.
func (d delivery) final() bool {
	return d.kind == kindFailed || d.kind == kindAborted || d.kind == kindLost
}

// turn returns the position of a rank when all get a message. Rank 0 comes last, since its process serves the
// others and may end as soon as it has the message. A rank that has aborted the job waits until the others
// have it.
func (d delivery) turn() int {
	switch {
	case d.rank == 0:
		return 2
	case d.kind == kindAborted && d.rank == d.message.rank:
		return 1
	}
	return 0
}

// inTurn sorts messages to all ranks by turn.
func inTurn(out []delivery) []delivery {
	slices.SortStableFunc(out, func(a, b delivery) int { return a.turn() - b.turn() })
	return out
}

func newTable(job string, size int) *table {
	return &table{job: job, members: make([]member, size), kvs: map[string]string{}}
}

// join admits a rank that has proved the secret. refused is the answer to a caller that is not admitted.
func (t *table) join(h hello) (out []delivery, refused *message) {
	no := func(text string, args ...any) *message {
		return &message{kind: kindFailed, text: fmt.Sprintf(text, args...)}
	}
	size := uint32(len(t.members))
	switch {
	case h.size != size:
		why := no("rank %d (%s) was told of %d ranks, and rank 0 of %d: give all ranks one number",
			h.rank, h.who(), h.size, size)
		return t.fail(*why), why
	case h.rank >= size:
		return nil, no("there is no rank %d in a job of %d", h.rank, size)
	case t.failure.kind == kindFailed:
		return nil, &t.failure
	case t.over:
		return nil, no("the job is over")
	case t.started:
		return nil, no("the job runs already, with %s as rank %d", t.members[h.rank].who(), h.rank)
	case t.members[h.rank].state != absent:
		why := no("two processes are rank %d: %s and %s", h.rank, t.members[h.rank].who(), h.who())
		return t.fail(*why), why
	}
	t.members[h.rank] = member{state: present, hello: h}
	return t.start(), nil
}

// start starts all ranks when the last one has come.
func (t *table) start() (out []delivery) {
	here := map[string]uint32{}
	for _, m := range t.members {
		if m.state == absent {
			return nil
		}
		here[m.kernel]++
	}
	t.started = true
	for r, m := range t.members {
		out = append(out, delivery{uint32(r), message{kind: kindStart, number: here[m.kernel],
			key: t.address, text: t.job}})
	}
	return inTurn(out)
}

// expire handles the deadline of the start. refused describes callers that were refused meanwhile, or is
// empty.
func (t *table) expire(within time.Duration, refused string) []delivery {
	text := t.missing()
	if text == "" {
		return nil
	}
	return t.fail(message{kind: kindFailed, text: text + " within " + within.String() + refused})
}

// missing describes the ranks that have not come; "" when the job has started or is over.
func (t *table) missing() string {
	if t.started || t.over {
		return ""
	}
	var missing []string
	for r, m := range t.members {
		if m.state == absent {
			missing = append(missing, strconv.Itoa(r))
		}
	}
	const maxNamed = 16
	list := strings.Join(missing[:min(len(missing), maxNamed)], ",")
	if len(missing) > maxNamed {
		list += fmt.Sprintf(" and %d more", len(missing)-maxNamed)
	}
	if len(missing) == 1 {
		return fmt.Sprintf("rank %s of %d has not come", list, len(t.members))
	}
	return fmt.Sprintf("ranks %s of %d have not come", list, len(t.members))
}

// handle handles one message of a rank in the job. An error is a violation of the protocol.
func (t *table) handle(rank uint32, m message) ([]delivery, error) {
	from := &t.members[rank]
	switch {
	case t.over:
		return nil, nil
	case m.kind == kindAbort:
		how := ""
		if from.hasLost {
			how = fmt.Sprintf(" (its connection to rank %d has ended)", from.lostPeer)
		}
		return t.fail(message{kind: kindAborted, rank: rank, number: m.number, text: how}), nil
	case m.kind == kindPeerLost && m.number < uint32(len(t.members)):
		if !from.hasLost {
			from.hasLost, from.lostPeer = true, m.number
		}
		return nil, nil
	case !t.started || from.state == finished:
		return nil, fmt.Errorf("a message of kind %d at a wrong time", m.kind)
	case m.kind == kindPut:
		return t.put(rank, m), nil
	case m.kind == kindGet:
		if value, ok := t.kvs[m.key]; ok {
			return []delivery{{rank, message{kind: kindDone, text: value}}}, nil
		}
		return []delivery{{rank, message{kind: kindMissing}}}, nil
	case m.kind == kindBarrier && from.state == present:
		from.state = waiting
		return t.release(), nil
	case m.kind == kindFarewell && from.state == present:
		from.state = finished
		return []delivery{{rank, message{kind: kindDone}}}, nil
	}
	return nil, fmt.Errorf("a message of kind %d that is not due", m.kind)
}

func (t *table) put(rank uint32, m message) []delivery {
	from := &t.members[rank]
	answer := message{kind: kindDone}
	switch _, taken := t.kvs[m.key]; {
	case m.key == "" || taken:
		answer = message{kind: kindRefused, text: fmt.Sprintf("the key %q is taken or empty", m.key)}
	case from.stored+len(m.key)+len(m.text) > maxSpace:
		answer = message{kind: kindRefused, text: fmt.Sprintf("more than %d bytes of one rank", maxSpace)}
	default:
		from.stored += len(m.key) + len(m.text)
		t.kvs[m.key] = m.text
	}
	return []delivery{{rank, answer}}
}

// release ends the barrier when all remaining ranks are in it.
func (t *table) release() (out []delivery) {
	for _, m := range t.members {
		if m.state != waiting && m.state != gone {
			return nil
		}
	}
	for r := range t.members {
		if m := &t.members[r]; m.state == waiting {
			m.state = present
			out = append(out, delivery{uint32(r), message{kind: kindRelease}})
		}
	}
	return inTurn(out)
}

// leave handles the end of a rank's connection.
func (t *table) leave(rank uint32, how string) []delivery {
	m := &t.members[rank]
	switch {
	case m.state == finished || t.over:
		return nil
	case !t.started: // it may reconnect
		*m = member{}
		return nil
	}
	m.state = gone
	how = fmt.Sprintf("%s: %s", m.who(), how)
	if !t.survive {
		return t.lose(rank, how)
	}
	var out []delivery
	for r := range t.members {
		if s := t.members[r].state; s == present || s == waiting {
			out = append(out, delivery{uint32(r), message{kind: kindWithout, rank: rank, text: how}})
		}
	}
	return append(out, t.release()...)
}

func (t *table) lose(rank uint32, how string) []delivery {
	return t.fail(message{kind: kindLost, rank: rank, text: how})
}

// fail ends the job, and notifies every connected rank.
func (t *table) fail(m message) (out []delivery) {
	if t.over {
		return nil
	}
	t.over, t.failure = true, m
	for r := range t.members {
		if s := t.members[r].state; s == present || s == waiting {
			out = append(out, delivery{uint32(r), m})
		}
	}
	return inTurn(out)
}
