package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// state is where a rank stands.
type state uint8

const (
	absent   state = iota // has not come, or has gone before the start; its hello leads to present
	present               // has come. The farewell leads to finished, the end of its connection to gone
	waiting               // is in the barrier; its release leads to present
	finished              // has said farewell
	gone                  // its connection has ended without a farewell
)

// A member is one rank as rank 0 knows it.
type member struct {
	state
	hello
	stored   int    // bytes put
	hasLost  bool   // it has told that it has lost a peer
	lostPeer uint32 // the first of them
}

// A table is the logic of rank 0's side, without I/O: what happens goes in, the messages to send come out.
type table struct {
	job     string
	members []member
	kvs     map[string]string
	address string // of rank 0's host, at which other hosts reach it; empty while no rank of another has come
	started bool
	over    bool // the job has ended or failed; there is nothing more to say
}

// A delivery is a message to a rank.
type delivery struct {
	rank uint32
	message
}

// final tells whether a message is the last one of the job.
func (d delivery) final() bool {
	return d.kind == kindFailed || d.kind == kindAborted || d.kind == kindLost
}

// turn is when a rank is told the end of the job: see fail.
func (d delivery) turn() int {
	switch {
	case d.rank == 0:
		return 2
	case d.kind == kindAborted && d.rank == d.message.rank:
		return 1
	}
	return 0
}

func newTable(job string, size int) *table {
	return &table{job: job, members: make([]member, size), kvs: map[string]string{}}
}

// join takes a rank in that has proved the secret. An answer is due to a caller that is not taken in.
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

// start has all ranks begin when the last one has come.
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
	return out
}

// expire is the deadline of the start. strangers says who has been refused meanwhile, or is empty.
func (t *table) expire(within time.Duration, strangers string) []delivery {
	if t.started || t.over {
		return nil
	}
	var missing []string
	for r, m := range t.members {
		if m.state == absent {
			missing = append(missing, strconv.Itoa(r))
		}
	}
	const most = 16
	list := strings.Join(missing[:min(len(missing), most)], ",")
	if len(missing) > most {
		list += fmt.Sprintf(" and %d more", len(missing)-most)
	}
	text := fmt.Sprintf("ranks %s of %d have not come within %s", list, len(t.members), within)
	if len(missing) == 1 {
		text = fmt.Sprintf("rank %s of %d has not come within %s", list, len(t.members), within)
	}
	return t.fail(message{kind: kindFailed, text: text + strangers})
}

// handle takes one message of a rank that is in the job. An error is a breach of the protocol.
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

// release ends the barrier when all ranks are in it.
func (t *table) release() (out []delivery) {
	for _, m := range t.members {
		if m.state != waiting {
			return nil
		}
	}
	for r := range t.members {
		t.members[r].state = present
		out = append(out, delivery{uint32(r), message{kind: kindRelease}})
	}
	return out
}

// leave notes that a rank's connection has ended.
func (t *table) leave(rank uint32, how string) []delivery {
	m := &t.members[rank]
	switch {
	case m.state == finished || t.over:
		return nil
	case !t.started: // it may come again
		*m = member{}
		return nil
	}
	m.state = gone
	return t.lose(rank, fmt.Sprintf("%s: %s", m.who(), how))
}

func (t *table) lose(rank uint32, how string) []delivery {
	return t.fail(message{kind: kindLost, rank: rank, text: how})
}

// fail ends the job: every rank that is there is told. The rank that is the cause comes after the others, for
// it waits until they know, and rank 0 last, for its process serves them.
func (t *table) fail(m message) (out []delivery) {
	if t.over {
		return nil
	}
	t.over = true
	for r := range t.members {
		if s := t.members[r].state; s == present || s == waiting {
			out = append(out, delivery{uint32(r), m})
		}
	}
	slices.SortStableFunc(out, func(a, b delivery) int { return a.turn() - b.turn() })
	return out
}
