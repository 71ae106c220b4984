package engine

import (
	"math/bits"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/uncached"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport"
)

// pullStage is a buffer that the other ranks of the host have mapped. A collective that pulls copies the
// bytes to be read into it if that is faster than a system call for each read (docs/internals/adr/0055). A
// rank has one stage for all communicators: if it is lent to another call, the others read the call's buffers
// themselves. It grows on demand, and is not freed.
//
// The memory is reused only after its keys were deregistered, and a read counts only if its key is still
// valid after it. The engine's lock guards the stage, but not its bytes.
type pullStage struct {
	memory transport.MR // nil before it is first needed
	lent   *Mailboxes   // the mailboxes of the call that has it; nil while it is free
	absent bool         // allocation has failed
	// write past the caches: other cores read the bytes, so they need not stay in the cache of this one
	uncached bool
	lines    lineSpeed
}

// lineSpeed measures how fast cache lines of the stage move between the caches of ranks: to a rank that reads
// what another has just written, or back to a rank that writes what others have read. Between some cores that
// is several times slower than a copy through memory: between two sockets, or in a virtual machine whose host
// has moved its cores apart, which may happen at any time.
type lineSpeed struct {
	slow    int // consecutive calls in which lines moved slowly
	avoided int // remaining calls in which this rank therefore writes past its caches
}

// copySpeed counts the bytes that a call has copied, to the stage and from those of others, and how many of
// them slowly.
type copySpeed struct{ bytes, slow int }

func (s *copySpeed) copied(bytes int, ticks int64) {
	s.bytes += bytes
	if ticks > int64(bytes/slowBytesPerTick) {
		s.slow += bytes
	}
}

const (
	pullStageMin = 64 << 10
	pullStageMax = 2 << 20 // for both buffers of a call
	// A longer buffer leaves the caches of one core anyway before another core reads it.
	pullStageUncachedMax = 512 << 10

	// Cache lines move slowly between cores if a call that copies at least lineSpeedBytes copies a quarter of
	// them at less than slowBytesPerTick (some 5 GB/s); the rest may stay within a core. One slow call may
	// have been interrupted. After slowInARow of them, avoidedCalls calls write past the caches before one
	// measures again.
	lineSpeedBytes   = 64 << 10
	slowBytesPerTick = 2
	slowInARow       = 2
	avoidedCalls     = 256
)

// note evaluates the copies of a call.
func (l *lineSpeed) note(s copySpeed) {
	switch {
	case s.bytes < lineSpeedBytes:
	case s.slow < s.bytes/4:
		l.slow = 0
	default:
		if l.slow++; l.slow >= slowInARow {
			l.slow, l.avoided = slowInARow-1, avoidedCalls
		}
	}
}

// avoid reports whether the next call is to write past the caches.
func (l *lineSpeed) avoid() bool {
	if l.avoided == 0 {
		return false
	}
	l.avoided--
	return true
}

// lend gives a call a portion of the stage for each buffer that it exposes, if there is room for all of them.
// Memory of Alloc needs none, as it is mapped already.
func (p *pullStage) lend(c *Collective, m *Mailboxes) {
	if p.lent != nil {
		return
	}
	var length [2]int
	for buf := range length {
		if c.Schedule.Exposed>>buf&1 != 0 && c.pinned[buf] == nil {
			length[buf] = len(c.memory[buf])
		}
	}
	first := (length[coll.Input] + mailboxLine - 1) &^ (mailboxLine - 1)
	n := first + length[coll.Output]
	if n == 0 || !p.grow(&m.e.MailboxCalls.buffers, m.fabric, n) {
		return
	}
	p.lent = m
	p.uncached = m.e.waiting.spinTime > 0 && n <= pullStageUncachedMax && c.Call.Quick != coll.QuickAlways ||
		p.lines.avoid()
	mem := p.memory.Bytes()
	for buf, at := range [...]int{coll.Input: 0, coll.Output: first} {
		if length[buf] > 0 {
			m.staged[buf] = mem[at:][:length[buf]:length[buf]]
		}
	}
}

// hasStage reports whether the current call has the stage. Only then may the stage be read without the lock:
// nobody changes it before the call is over.
func (m *Mailboxes) hasStage() bool {
	return m.staged[coll.Input] != nil || m.staged[coll.Output] != nil
}

// grow makes the stage at least n bytes long; false if that fails.
func (p *pullStage) grow(buffers *collectiveBuffers, f *fabric, n int) bool {
	switch {
	case p.absent || n > pullStageMax:
		return false
	case p.memory != nil && len(p.memory.Bytes()) >= n:
		return true
	case p.memory != nil:
		_ = buffers.free(p.memory) // none of its keys is valid
		p.memory = nil
	}
	var err error
	n = max(pullStageMin, 1<<bits.Len(uint(n-1)))
	p.memory, err = buffers.alloc(f, n, transport.LocalWrite|transport.Mappable)
	p.absent = err != nil
	return err == nil
}

// write copies src, for other ranks to read, into the stage at dst.
func (p *pullStage) write(dst, src []byte, speed *copySpeed) {
	began := sys.Ticks()
	if p.uncached {
		uncached.Copy(dst, src)
		uncached.Fence()
	} else {
		sys.CopyLong(dst, src)
	}
	speed.copied(len(src), sys.Ticks()-began)
}

// takeBack ends the use of the stage by the current call of m.
func (p *pullStage) takeBack(m *Mailboxes) {
	m.staged = [2][]byte{}
	if p.lent == m {
		p.lent = nil
	}
}
