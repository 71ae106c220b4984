// Package trace records the events of a rank with their times, until the rank hands them to its launcher. A
// rank has a fixed number of records; when they are used up, it counts the events that it drops. So the
// records have no gaps: the first message in the records of two ranks is the same one.
package trace

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/petermattis/goid"

	"github.com/weft-mpi/weft/internal/sys"
)

// Kind is the kind of a record.
type Kind uint8

const (
	CallBegin   Kind = iota + 1 // of a call: What is its number, Bytes the size of its buffer
	CallEnd                     // likewise
	Slept                       // the goroutine has slept in a call, for Bytes ns
	Sent                        // a message has been passed to its protocol
	Matched                     // a message has been matched with its receive
	Withdrawn                   // a sent message is cancelled
	Phase                       // this rank now sends to Peer in phase Bytes, on Context's endpoint
	RegionBegin                 // of the program; Peer is the number of its name
	RegionEnd                   // likewise
	Sleeps                      // the goroutine begins to sleep in call What; dropped if it wakes
	kinds
)

// Record is one event. Fields that its kind does not have are 0.
type Record struct {
	Time      int64 // in ns, since the buffer was made
	Bytes     int64 // at most MaxBytes
	Context   uint32
	Tag, Peer int32
	Goroutine uint32 // the low bits of its number
	Kind      Kind
	What      uint8
}

// MaxBytes is the largest length that a record can hold.
const MaxBytes = 1<<bytesBits - 1

const (
	bytesBits = 48
	// entryBytes is the size of an entry in memory.
	entryBytes = 40
	// Limits of the names of regions.
	maxNames     = 4096
	maxNameBytes = 256
)

// entry is one or several Records in memory. Kind, what and bytes are in head, which is 0 in an unwritten
// entry. Times are stamps.
type entry struct {
	head       uint64
	time, ends int64 // ends is the end of a call
	context    uint32
	tag, peer  int32
	goroutine  uint32
}

// Kinds of entries besides those of records.
const (
	call    = kinds + iota // a call, from its beginning to its end
	receive                // likewise, with a message that it has matched at its end
)

// Buffer has the records of a rank. Its methods may be called from any goroutine.
type Buffer struct {
	entries []entry
	next    atomic.Uint64 // number of the next entry; it grows even without room
	began   time.Time
	// stamps are ticks of the processor, of which one is known in ns since began; otherwise they are such ns
	ticks              bool
	firstTick, firstNs int64

	mu    sync.Mutex
	names []string // of regions
	index map[string]int32
}

// NewBuffer returns a buffer of a size in bytes, for records whose times begin at began. Its pages are
// present, so that no writer waits for one.
func NewBuffer(bytes int, began time.Time) *Buffer {
	b := &Buffer{entries: make([]entry, bytes/entryBytes), began: began, index: map[string]int32{}}
	for i := range b.entries {
		b.entries[i].head = 0
	}
	return b
}

// UseTicks makes stamps readings of the processor's counter, which must count steadily. Call it before the
// first record.
func (b *Buffer) UseTicks() {
	b.ticks = true
	b.firstTick, b.firstNs = b.pair()
}

// pair returns the same moment in ticks and in ns.
func (b *Buffer) pair() (ticks, ns int64) {
	best := int64(1) << 62
	for range 16 { // the system may suspend this thread between two readings
		before, now, after := sys.Ticks(), b.Now(), sys.Ticks()
		if after-before < best {
			best, ticks, ns = after-before, before+(after-before)/2, now
		}
	}
	return ticks, ns
}

// Now returns the time since the beginning of the buffer's records, in ns.
func (b *Buffer) Now() int64 { return int64(time.Since(b.began)) }

// Stamp returns the current time for an entry that is written later.
func (b *Buffer) Stamp() int64 {
	if b.ticks {
		return sys.Ticks()
	}
	return b.Now()
}

// Duration returns the approximate duration of a difference of two stamps.
func (b *Buffer) Duration(stamps int64) time.Duration {
	if !b.ticks {
		return time.Duration(stamps)
	}
	return time.Duration(float64(stamps) * b.clock().scale)
}

// Add writes a record for this moment and goroutine. It allocates nothing.
func (b *Buffer) Add(k Kind, what uint8, context uint32, peer, tag, bytes int) {
	b.AddAt(b.Stamp(), k, what, context, peer, tag, bytes)
}

// AddAt is Add with a given stamp.
func (b *Buffer) AddAt(stamp int64, k Kind, what uint8, context uint32, peer, tag, bytes int) {
	if e := b.entry(); e != nil {
		e.set(stamp, 0, k, what, context, peer, tag, bytes)
	}
}

// AddCall writes CallBegin and CallEnd of a call that ends now.
func (b *Buffer) AddCall(begun int64, what uint8, peer, tag, bytes int) {
	if e := b.entry(); e != nil {
		e.set(begun, b.Stamp(), call, what, 0, peer, tag, bytes)
	}
}

// AddReceive is AddCall for a receive, with Matched for the message that it has matched now.
func (b *Buffer) AddReceive(begun int64, what uint8, context uint32, peer, tag, bytes int) {
	if e := b.entry(); e != nil {
		e.set(begun, b.Stamp(), receive, what, context, peer, tag, bytes)
	}
}

// entry returns the next entry; nil without room.
func (b *Buffer) entry() *entry {
	if i := b.next.Add(1) - 1; i < uint64(len(b.entries)) {
		return &b.entries[i]
	}
	return nil
}

// set writes an entry. If a job ends in the middle, a reader may read it at the same time: a torn entry is
// one of the last ones, and readers check every entry. An ordering store would double the cost.
//
//go:norace
func (e *entry) set(time, ends int64, k Kind, what uint8, context uint32, peer, tag, bytes int) {
	e.time, e.ends = time, ends
	e.context, e.tag, e.peer, e.goroutine = context, int32(tag), int32(peer), uint32(goid.Get())
	e.head = uint64(k)<<(bytesBits+8) | uint64(what)<<bytesBits | uint64(min(bytes, MaxBytes))
}

// Name returns the number of a region's name, for Peer of its records. All names beyond the limit share a
// number.
func (b *Buffer) Name(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.index[name]; ok {
		return int(i)
	}
	own := name[:min(len(name), maxNameBytes)]
	if len(b.names) == maxNames-1 {
		own = "other regions"
	}
	if len(b.names) == maxNames {
		return maxNames - 1
	}
	b.index[name] = int32(len(b.names))
	b.names = append(b.names, own)
	return len(b.names) - 1
}
