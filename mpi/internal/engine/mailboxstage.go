package engine

import (
	"math/bits"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/uncached"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport"
)

// pullStage is memory that the other ranks of the host have mapped. A collective whose ranks read each
// other's memory copies into it what they are to read, where that is quicker than a system call for each of
// their reads (docs/internals/adr/0055). A rank has one stage for all communicators: a call that finds it
// lent has its buffers read themselves. It grows with what is needed, and stays.
//
// The memory is used again only when its keys are out of use, and who reads by a key counts what it has read
// only if the key is in use afterwards. The engine's lock guards it, but not its bytes.
type pullStage struct {
	memory transport.MR // nil before it is first needed
	lent   *Mailboxes   // to a call of theirs; nil while it is free
	absent bool         // it cannot be had
	// what is written now is read by other cores, and would stay in the cache of this one
	uncached bool
	lines    lineSpeed
}

// lineSpeed tells how fast lines of the stage move between the caches of ranks: to one that reads what
// another has just written, or back to one that writes what others have read. Between some cores that is
// several times as slow as to copy by way of memory: those of two sockets, or of a virtual machine whose host
// has moved them apart, which it may do at any time.
type lineSpeed struct {
	slow    int // calls in a row in which that was slow
	avoided int // calls yet in which this rank writes past its caches for that
}

// copySpeed is how much a call has copied, to the stage and from others', and how much of that slowly.
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
	pullStageCached = 512 << 10

	// Cache lines move slowly between cores if a call that copies at least lineSpeedBytes copies a quarter of
	// them at less than slowBytesPerTick (some 5 GB/s); the rest may stay within a core. One slow call may
	// have been interrupted. After slowInARow of them, avoidedCalls calls write past the caches before one
	// measures again.
	lineSpeedBytes   = 64 << 10
	slowBytesPerTick = 2
	slowInARow       = 2
	avoidedCalls     = 256
)

// note records what a call has copied.
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

// avoid tells whether the next call is to write past the caches.
func (l *lineSpeed) avoid() bool {
	if l.avoided == 0 {
		return false
	}
	l.avoided--
	return true
}

// lend gives a call a part of the stage for each buffer that it exposes, if there is room for all of them.
// What comes from Alloc is mapped already.
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
	if n == 0 || !p.grow(&m.e.Collectives.buffers, m.fabric, n) {
		return
	}
	p.lent = m
	p.uncached = m.e.waiting.spinTime > 0 && n <= pullStageCached || p.lines.avoid()
	mem := p.memory.Bytes()
	for buf, at := range [...]int{coll.Input: 0, coll.Output: first} {
		if length[buf] > 0 {
			m.staged[buf] = mem[at:][:length[buf]:length[buf]]
		}
	}
}

// hasStage tells whether the present call has been lent the stage. Only then may the stage be looked at
// without the lock: nobody changes it before the call is over.
func (m *Mailboxes) hasStage() bool {
	return m.staged[coll.Input] != nil || m.staged[coll.Output] != nil
}

// grow sees to it that the stage has n bytes at least; false if it has not.
func (p *pullStage) grow(buffers *collectiveBuffers, f *fabric, n int) bool {
	switch {
	case p.absent || n > pullStageMax:
		return false
	case p.memory != nil && len(p.memory.Bytes()) >= n:
		return true
	case p.memory != nil:
		_ = buffers.free(p.memory) // no key of it is in use
		p.memory = nil
	}
	var err error
	n = max(pullStageMin, 1<<bits.Len(uint(n-1)))
	p.memory, err = buffers.alloc(f, n, transport.LocalWrite|transport.Mappable)
	p.absent = err != nil
	return err == nil
}

// write copies into the stage what other ranks are to read.
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

// takeBack ends the use of the stage by the present call of some mailboxes.
func (p *pullStage) takeBack(m *Mailboxes) {
	m.staged = [2][]byte{}
	if p.lent == m {
		p.lent = nil
	}
}
