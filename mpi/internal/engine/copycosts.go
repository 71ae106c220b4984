package engine

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/sys"
)

// peerCopies has what copies between this rank and a peer of its host take, and what follows from that for a
// message whose receiver is probably waiting.
type peerCopies struct {
	mapped  time.Duration // MappedKiB: sampled, or what it is taken for
	rewrite time.Duration // RewriteKiB likewise, measured as mailboxes are set up
	// Length up to which it goes through the ring; -1 if the lengths of all messages are decided otherwise.
	// It need not be the peer's.
	awaited  int
	streamed int  // likewise, of a nonblocking send
	sampled  bool // messages are sampled
	in       writes
	out      copycost.Samples
	explores copycost.Exploration
	growth   backoff // messages in fragments that were too long for the present slots
}

// begin begins with a peer of a fabric, and returns the length up to which a blocking send always uses
// a slot.
func (c *peerCopies) begin(f *fabric) (shortLimit int) {
	costs := f.copyCosts(0, 0)
	*c = peerCopies{mapped: costs.MappedKiB, rewrite: costs.RewriteKiB, awaited: -1, streamed: -1}
	if !f.awaits {
		return f.eagerLimit
	}
	c.awaited, c.streamed, c.sampled = costs.Awaited(), costs.Streamed(), !f.pinsCosts()
	return min(f.eagerLimit, c.awaited, copycost.MinSample-1)
}

// throughRing reports whether a message of n bytes goes through the ring, where limit is awaited or streamed.
func (c *peerCopies) throughRing(n, limit int) bool {
	return n <= limit ||
		c.sampled && n >= copycost.MinSample && n <= copycost.MaxMapped && c.explores.Next()
}

// beginSample returns the time if the next copy of n bytes out of the ring is to be sampled, else 0.
func (c *peerCopies) beginSample(n int) int64 {
	if n >= copycost.MinSample && c.sampled && c.out.Due() {
		return sys.Ticks()
	}
	return 0
}

// beginRingSample is beginSample of a copy into the ring.
func (c *peerCopies) beginRingSample(n int) int64 {
	if n < copycost.MinRingSample || !c.sampled {
		return 0
	}
	return c.in.begin()
}

// endRingSample is endSample of a copy into the ring, whose lines the peer takes over if that makes copies
// quicker.
func (e *Engine) endRingSample(p *peer, began int64, n int) {
	if began != 0 {
		e.endDueRingSample(p, began, n)
	}
}

func (e *Engine) endDueRingSample(p *peer, began int64, n int) {
	if in := &p.copies.in; in.end(&e.hub.clock, began, n, p.ch.Takeover()) {
		p.ch.AskTakeover(in.takeover.Ask())
		e.noteCosts(p)
	}
}

// writes has what copies to memory take from which a peer copies, and whether the peer is to take over its
// lines therefore.
type writes struct {
	copycost.Samples
	takeover copycost.Takeover
}

// begin returns the time if the next copy is to be sampled, else 0.
func (w *writes) begin() int64 {
	if w.DueFor(&w.takeover) {
		return sys.Ticks()
	}
	return 0
}

// end notes the sample that began then, of a copy of n bytes, and whether all lines that it wrote had been
// taken over. It reports whether it decided anew.
func (w *writes) end(clock *tickClock, began int64, n int, taken bool) bool {
	if !w.Note(copyTicks(began)-clock.sample, n) {
		return false
	}
	w.takeover.Note(clock.duration(w.KiB()), taken)
	return true
}

// endSample notes the sample that began then, of a copy of n bytes.
func (e *Engine) endSample(p *peer, s *copycost.Samples, began int64, n int) {
	if s.Note(copyTicks(began), n) {
		e.noteCosts(p)
	}
}

// copyTicks returns how long a copy took that began then. A store counts when the other core has given up its
// line. A few KiB of stores wait for that in the processor, and would seem to take a third of the time.
func copyTicks(began int64) int64 {
	sys.FullBarrier()
	return sys.Ticks() - began
}

// noteCosts decides by the present samples.
func (e *Engine) noteCosts(p *peer) {
	in, out := p.copies.in.KiB(), p.copies.out.KiB()
	both := in + out
	if in == 0 || out == 0 {
		both *= 2
	}
	costs := p.fabric.copyCosts(max(1, e.hub.clock.duration(both)), p.copies.rewrite)
	p.copies.mapped = costs.MappedKiB
	e.mappedKiB.Store(int64(costs.MappedKiB))
	e.rewriteKiB.Store(int64(costs.RewriteKiB))
	if p.copies.awaited >= 0 {
		p.decideByCosts(costs)
	}
}

// copyCosts returns what copies take between processes that the fabric connects: what the user has pinned, or
// else what the device has measured and the given costs of mapped memory, or else those to start with.
func (f *fabric) copyCosts(mappedKiB, rewriteKiB time.Duration) copycost.Costs {
	c := copycost.Costs(f.Device.Query().CopyCosts)
	if c.MappedKiB == 0 {
		c.MappedKiB, c.RewriteKiB = mappedKiB, rewriteKiB
	}
	return c.Or(f.start).Or(copycost.Default)
}

// pinsCosts reports whether the user has given the costs for good.
func (f *fabric) pinsCosts() bool { return f.Device.Query().CopyCosts.MappedKiB > 0 }

// CopyCosts returns what copies between this rank's process and others of its host take: through mapped
// memory, as with the peer with which that was sampled last. It needs no lock, and takes some tens of
// nanoseconds.
func (e *Engine) CopyCosts() copycost.Costs {
	for _, f := range e.fabrics {
		if f.Device.Query().DirectCopies {
			return f.copyCosts(time.Duration(e.mappedKiB.Load()), time.Duration(e.rewriteKiB.Load()))
		}
	}
	return copycost.Default
}

// tickClock converts ticks of the processor. Their rate is measured from when it was made.
type tickClock struct {
	began  time.Time
	ticks  int64
	sample int64        // ticks that a sample of nothing takes
	rate   atomic.Int64 // ticks in 2^20 ns; 0 before it is known
}

func (c *tickClock) begin() {
	c.began, c.ticks, c.sample = time.Now(), sys.Ticks(), math.MaxInt64
	for range 8 {
		began := sys.Ticks()
		sys.FullBarrier()
		c.sample = min(c.sample, sys.Ticks()-began)
	}
}

// duration returns how long so many ticks take.
func (c *tickClock) duration(ticks int64) time.Duration {
	rate := c.rate.Load()
	if rate == 0 {
		ns := max(1, time.Since(c.began))
		rate = max(1, int64(float64(sys.Ticks()-c.ticks)/float64(ns)*(1<<20)))
		if ns > 10*time.Millisecond { // exact enough for all times
			c.rate.Store(rate)
		}
	}
	return time.Duration(ticks << 20 / rate)
}
