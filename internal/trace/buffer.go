// Package trace keeps what a rank does, event by event with its time, until the rank hands it to its
// launcher. A rank has a fixed number of records; when they are used up it counts what it leaves out. So what
// is there has no gaps: the first message in the records of two ranks is the same one.
package trace

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/petermattis/goid"
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
	Phase                       // Bytes is the phase in which this rank now sends to Peer
	RegionBegin                 // of the program; Peer is the number of its name
	RegionEnd                   // likewise
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
	// entryBytes is what a record takes in memory.
	entryBytes = 32
	// Limits of the names of regions.
	maxNames     = 4096
	maxNameBytes = 256
)

// entry is a Record in memory. Its head, kind, what and bytes, is written last, so that who reads it has all
// of it.
type entry struct {
	head      atomic.Uint64
	time      int64
	context   uint32
	tag, peer int32
	goroutine uint32
}

// Buffer has the records of a rank. Its methods may be called by any goroutine.
type Buffer struct {
	entries []entry
	next    atomic.Uint64 // number of the record that is written next; it goes on when there is no room
	began   time.Time

	mu    sync.Mutex
	names []string // of regions
	index map[string]int32
}

// NewBuffer returns a buffer of so many bytes, of records whose times begin at began.
func NewBuffer(bytes int, began time.Time) *Buffer {
	return &Buffer{entries: make([]entry, bytes/entryBytes), began: began, index: map[string]int32{}}
}

// Now is the time of a record that would be written now.
func (b *Buffer) Now() int64 { return int64(time.Since(b.began)) }

// Add writes a record of this moment, by this goroutine. It allocates nothing.
func (b *Buffer) Add(k Kind, what uint8, context uint32, peer, tag, bytes int) {
	b.AddAt(b.Now(), k, what, context, peer, tag, bytes)
}

// AddAt is Add for who knows the time.
func (b *Buffer) AddAt(now int64, k Kind, what uint8, context uint32, peer, tag, bytes int) {
	i := b.next.Add(1) - 1
	if i >= uint64(len(b.entries)) {
		return
	}
	e := &b.entries[i]
	e.time = now
	e.context, e.tag, e.peer, e.goroutine = context, int32(tag), int32(peer), uint32(goid.Get())
	e.head.Store(uint64(k)<<(bytesBits+8) | uint64(what)<<bytesBits | uint64(min(bytes, MaxBytes)))
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

// records are those that are complete, in the order in which they were begun, and how many have been left
// out.
func (b *Buffer) records() (list []Record, omitted uint64) {
	n := b.next.Load()
	kept := min(n, uint64(len(b.entries)))
	for i := range b.entries[:kept] {
		e := &b.entries[i]
		h := e.head.Load()
		if h == 0 {
			omitted++ // it is being written
			continue
		}
		list = append(list, Record{Time: e.time, Bytes: int64(h & MaxBytes), Context: e.context, Tag: e.tag,
			Peer: e.peer, Goroutine: e.goroutine, Kind: Kind(h >> (bytesBits + 8)),
			What: uint8(h >> bytesBits)})
	}
	return list, omitted + n - kept
}
