package tracefile

import (
	"github.com/weft-mpi/weft/internal/trace"
)

// message is a message that a rank has sent, or received, or both. Times are by the clock of the rank in
// question.
type message struct {
	from, to int // indices of ranks
	// The send happened between these. Its record is written when the message is in flight, and may have
	// arrived.
	earliest, sent int64
	received       int64
	paired         bool // both ends are known, and received is not too early
}

// envelope identifies messages that are received in the order in which they were sent.
type envelope struct {
	from, to int32 // world ranks
	context  uint32
	tag      int32
}

// stream has the messages of an envelope, as the two ranks reported them.
type stream struct {
	sends, matches []half
	withdrawn      bool // a message was cancelled, so sends and matches cannot be paired
}

// half is one end of a message, as a rank reported it.
type half struct {
	earliest, at int64
	bytes        int64
	rank, index  int // the rank, and the number among its messages
}

// pairing has the paired messages.
type pairing struct {
	messages []message
	// by rank, and by the number of its Sent or Matched record: the message, or -1
	of       [][]int
	unpaired int // ends of messages that get no arrow
}

// pair finds the two ends of each message: the n-th message sent with an envelope is the n-th received with
// it.
func pair(ranks []*trace.Rank) *pairing {
	streams := map[envelope]*stream{}
	at := func(e envelope) *stream {
		s := streams[e]
		if s == nil {
			s = &stream{}
			streams[e] = s
		}
		return s
	}
	p := &pairing{of: make([][]int, len(ranks))}
	for i, r := range ranks {
		before := map[uint32]int64{} // the latest record of each goroutine
		for e := range r.Records() {
			t := r.Epoch + e.Time
			me := int32(r.Rank)
			earliest, ok := before[e.Goroutine]
			if !ok {
				earliest = r.Epoch
			}
			before[e.Goroutine] = t
			h := half{earliest, t, e.Bytes, i, len(p.of[i])}
			switch e.Kind {
			case trace.Sent:
				s := at(envelope{me, e.Peer, e.Context, e.Tag})
				s.sends = append(s.sends, h)
			case trace.Matched:
				s := at(envelope{e.Peer, me, e.Context, e.Tag})
				s.matches = append(s.matches, h)
			case trace.Withdrawn:
				at(envelope{me, e.Peer, e.Context, e.Tag}).withdrawn = true
				continue
			default:
				continue
			}
			p.of[i] = append(p.of[i], -1)
		}
	}
	for _, s := range streams {
		n := min(len(s.sends), len(s.matches))
		if s.withdrawn {
			n = 0
		}
		for k := range n {
			a, b := s.sends[k], s.matches[k]
			if a.bytes != b.bytes {
				n = k // the records do not match
				break
			}
			p.of[a.rank][a.index], p.of[b.rank][b.index] = len(p.messages), len(p.messages)
			p.messages = append(p.messages, message{from: a.rank, to: b.rank, earliest: a.earliest,
				sent: a.at, received: b.at, paired: true})
		}
		p.unpaired += len(s.sends) + len(s.matches) - 2*n
	}
	return p
}

// settle gives every send a time before the message's arrival, if possible. Clocks that differ too much at
// the same moment leave a message without its arrow.
func (p *pairing) settle(clocks []*clock) {
	for i := range p.messages {
		m := &p.messages[i]
		from := clocks[m.from]
		m.earliest, m.sent = from.convert(m.earliest), from.convert(m.sent)
		m.received = clocks[m.to].convert(m.received)
		m.sent = min(m.sent, m.received-1)
		if m.sent < m.earliest {
			m.paired = false
			p.unpaired += 2
		}
	}
}
