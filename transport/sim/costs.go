package sim

import "time"

// Costs makes messages take time, by package time: in a bubble of testing/synctest it is simulated. The model
// is LogGP with a cost of copies, in which a message leaves when its sender begins to handle it. A device's
// processor handles one message at a time, and so does each direction of its link.
type Costs struct {
	Latency   time.Duration // from the start of a byte's transmission to its arrival
	Bandwidth float64       // bytes a second of a device's link, in each direction; 0 for no limit
	Overhead  time.Duration // of the processor, for each message, at either end
	Copy      float64       // bytes a second that the processor copies, at either end; 0 for no limit
}

// WithCosts makes messages take time. Then they are cut only where they must be, and requests complete when
// their bytes have left, not at random.
func WithCosts(c Costs) Option { return func(n *Network) { n.costs = &c } }

// busy holds the times until which the parts of a device are busy.
type busy struct{ processor, out, in time.Time }

// take occupies a part for d, from a time on or when it is free, and returns the end.
func take(part *time.Time, from time.Time, d time.Duration) time.Time {
	if part.Before(from) {
		*part = from
	}
	*part = part.Add(d)
	return *part
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// at returns how long n bytes take at a rate.
func at(n int, rate float64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(n) / rate * float64(time.Second))
}

// linger delays the arrival of a piece over a slow link.
func (q *qp) linger(p *piece) {
	d := q.net.slow[pairOf(q.dev.rank(), q.peerRank)]
	if d == 0 {
		return
	}
	p.travels = true
	go func() {
		time.Sleep(d)
		q.net.mu.Lock()
		defer q.net.mu.Unlock()
		p.travels = false
		q.peer.signal()
	}()
}

// travel sets the arrival of a piece that is sent now.
func (q *qp) travel(m *message, p *piece) {
	c, peer := q.net.costs, q.peer
	if c == nil {
		q.linger(p)
		return
	}
	copying, now := at(p.n, c.Copy), time.Now()
	handling := copying
	if m.sent == 0 {
		handling += c.Overhead
	}
	sending := at(p.n, c.Bandwidth)
	// The bytes leave as they are copied, while the processor is busy with the message.
	begun := take(&q.dev.busy.processor, now, handling).Add(-handling)
	left := later(take(&q.dev.busy.out, begun, sending), begun.Add(copying))
	// the peer's incoming link takes the bytes as they arrive, unless it is busy
	come := take(&peer.dev.busy.in, left.Add(c.Latency-sending), sending)
	p.travels = true
	// Not by AfterFunc: in a bubble the race detector of Go 1.26 crashes after some ten thousand of them.
	go func() {
		time.Sleep(come.Sub(now))
		q.net.mu.Lock()
		now := time.Now()
		handled := take(&peer.dev.busy.processor, now, handling)
		q.net.mu.Unlock()
		time.Sleep(handled.Sub(now))
		q.net.mu.Lock()
		defer q.net.mu.Unlock()
		p.travels = false
		peer.signal()
	}()
}
