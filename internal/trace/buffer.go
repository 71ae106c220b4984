// Package trace keeps what a rank does, event by event with its time, until the rank hands it to its
// launcher. A rank has a fixed number of records; when they are used up it counts what it leaves out. So what
// is there has no gaps: the first message in the records of two ranks is the same one.
package trace

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/petermattis/goid"

	"github.com/weft-mpi/weft/internal/sys"
)

// Kind says what a record is of.
type Kind uint8

const (
	CallBegin   Kind = iota + 1 // of a call: What is its number, Bytes what is in its buffer
	CallEnd                     // likewise
	Slept                       // the goroutine has slept in a call, for Bytes ns
	Sent                        // a message has been given to its protocol
	Matched                     // a message has found its receive
	Withdrawn                   // a message that was sent is cancelled
	Phase                       // this rank now sends to Peer in phase Bytes, on Context's endpoint
	RegionBegin                 // of the program; Peer is the number of its name
	RegionEnd                   // likewise
	Sleeps                      // the goroutine begins to sleep in call What; dropped if it wakes
	kinds
)

// Record is one event. What its kind does not have is 0.
type Record struct {
	Time      int64 // in ns, since the buffer was made
	Bytes     int64 // at most MaxBytes
	Context   uint32
	Tag, Peer int32
	Goroutine uint32 // the low bits of its number
	Kind      Kind
	What      uint8
}

// MaxBytes is the most that a record can say of a message.
const MaxBytes = 1<<bytesBits - 1

const (
	bytesBits = 48
	// entryBytes is what an entry takes in memory.
	entryBytes = 40
	// Limits of the names of regions.
	maxNames     = 4096
	maxNameBytes = 256
)

// entry is one or several Records in memory. Kind, what and bytes are in head, which is 0 where nothing has
// been written. Times are stamps.
type entry struct {
	head       uint64
	time, ends int64 // ends is that of a call
	context    uint32
	tag, peer  int32
	goroutine  uint32
}

// Kinds of entries beside those of records.
const (
	call    = kinds + iota // a call, from its beginning to its end
	receive                // likewise, with a message that it has taken at its end
)

// Buffer has the records of a rank. Its methods may be called by any goroutine.
type Buffer struct {
	entries []entry
	next    atomic.Uint64 // number of the entry that is written next; it goes on when there is no room
	began   time.Time
	// stamps are ticks of the processor, of which one is known in ns since began; else they are such ns
	ticks              bool
	firstTick, firstNs int64

	mu    sync.Mutex
	names []string // of regions
	index map[string]int32
}

// NewBuffer returns a buffer of so many bytes, of records whose times begin at began. The memory is there
// then, so that nobody waits for a page.
func NewBuffer(bytes int, began time.Time) *Buffer {
	b := &Buffer{entries: make([]entry, bytes/entryBytes), began: began, index: map[string]int32{}}
	for i := range b.entries {
		b.entries[i].head = 0
	}
	return b
}

// UseTicks has the processor's counter read for stamps, which must count steadily. Nothing has been added
// yet.
func (b *Buffer) UseTicks() {
	b.ticks = true
	b.firstTick, b.firstNs = b.pair()
}

// pair is the same moment as a tick and in ns.
func (b *Buffer) pair() (ticks, ns int64) {
	best := int64(1) << 62
	for range 16 { // between two readings this thread may have been kept from running
		before, now, after := sys.Ticks(), b.Now(), sys.Ticks()
		if after-before < best {
			best, ticks, ns = after-before, before+(after-before)/2, now
		}
	}
	return ticks, ns
}

// Now is how much time has passed since the buffer's records begin, in ns.
func (b *Buffer) Now() int64 { return int64(time.Since(b.began)) }

// Stamp is the time for an entry that is written later.
func (b *Buffer) Stamp() int64 {
	if b.ticks {
		return sys.Ticks()
	}
	return b.Now()
}

// Duration is how long a difference of two stamps is, roughly.
func (b *Buffer) Duration(stamps int64) time.Duration {
	if !b.ticks {
		return time.Duration(stamps)
	}
	return time.Duration(float64(stamps) * b.clock().scale)
}

// Add writes a record of this moment, by this goroutine. It allocates nothing.
func (b *Buffer) Add(k Kind, what uint8, context uint32, peer, tag, bytes int) {
	b.AddAt(b.Stamp(), k, what, context, peer, tag, bytes)
}

// AddAt is Add for who has the stamp.
func (b *Buffer) AddAt(stamp int64, k Kind, what uint8, context uint32, peer, tag, bytes int) {
	if e := b.entry(); e != nil {
		e.set(stamp, 0, k, what, context, peer, tag, bytes)
	}
}

// AddCall writes what CallBegin and CallEnd say of a call that ends now.
func (b *Buffer) AddCall(begun int64, what uint8, peer, tag, bytes int) {
	if e := b.entry(); e != nil {
		e.set(begun, b.Stamp(), call, what, 0, peer, tag, bytes)
	}
}

// AddReceive is AddCall of a receive, and says what Matched does of the message that it has taken now.
func (b *Buffer) AddReceive(begun int64, what uint8, context uint32, peer, tag, bytes int) {
	if e := b.entry(); e != nil {
		e.set(begun, b.Stamp(), receive, what, context, peer, tag, bytes)
	}
}

// entry is the next entry, nil where there is no room.
func (b *Buffer) entry() *entry {
	if i := b.next.Add(1) - 1; i < uint64(len(b.entries)) {
		return &b.entries[i]
	}
	return nil
}

// set writes an entry. Who reads it may do so at the same time, where a job ends in the middle: what is half
// written then is one of the last entries, and is checked as all are. A store that orders them would cost as
// much as all of it.
//
//go:norace
func (e *entry) set(time, ends int64, k Kind, what uint8, context uint32, peer, tag, bytes int) {
	e.time, e.ends = time, ends
	e.context, e.tag, e.peer, e.goroutine = context, int32(tag), int32(peer), uint32(goid.Get())
	e.head = uint64(k)<<(bytesBits+8) | uint64(what)<<bytesBits | uint64(min(bytes, MaxBytes))
}

// Name is the number of a region's name, for Peer of its records. All names that are too many are one.
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
