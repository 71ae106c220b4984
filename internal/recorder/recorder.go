// Package recorder keeps the last events of a rank in memory that outlives it: a ring of records that the
// rank shares with its launcher's agent, which reads it when something has gone wrong, however the rank has
// ended.
//
// A record has no time of its own: reading a clock costs many times what a record does. Some records are
// stamps instead, which say when they were written: one in each stampEvery records, and one wherever the rank
// has the time for it, because it waits. The times of the events between two stamps are interpolated.
package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// Variable is the environment variable that tells a rank the descriptor of the memory.
const Variable = "WEFT_RECORDER_FD"

const (
	entries    = 4096 // of the ring, 64 KiB
	stampEvery = 256  // records of which at least one is a stamp
	version    = 1
	headBytes  = 4096
)

// Size is how many bytes the memory of a recorder has: a page that tells how far the ring is filled, and the
// ring.
const Size = headBytes + entries*16

// record is an event in two words: kind in 8 bits, rank in 24 and context in 32; tag in 32 and bytes in 32. A
// stamp has its time in the second one.
type record [2]uint64

// memory is what the rank and the agent share. The rank alone writes there.
type memory struct {
	next       uint64 // number of the record that is written next, from 0
	version    uint64
	operations [maxOperations][nameBytes]byte // the names of collectives, by number
	_          [headBytes - 16 - maxOperations*nameBytes]byte
	ring       [entries]record
}

// Limits of the names of collectives.
const (
	maxOperations = 32
	nameBytes     = 24
)

// Recorder writes the events of a rank. Its user has a lock around it.
type Recorder struct {
	m       *memory
	latest  record        // the event noted last, which may be repeated
	stamped uint64        // how many records there were with the latest stamp
	began   time.Time     // what the times of stamps are relative to
	origin  time.Duration // its time, since 1970
}

// New returns a recorder that writes to memory of its own, where nobody but this process can read it.
func New() *Recorder { return newRecorder(new(memory)) }

// Open returns a recorder that writes to shared memory, which it maps. The descriptor can be closed after it.
func Open(fd int) (*Recorder, error) {
	m, err := mapMemory(fd)
	if err != nil {
		return nil, err
	}
	return newRecorder(m), nil
}

func mapMemory(fd int) (*memory, error) {
	if err := sys.CheckShared(fd, Size); err != nil {
		return nil, fmt.Errorf("memory of the recorder: %w", err)
	}
	b, err := sys.MapShared(fd, Size)
	if err != nil {
		return nil, fmt.Errorf("memory of the recorder: %w", err)
	}
	return (*memory)(unsafe.Pointer(&b[0])), nil
}

func newRecorder(m *memory) *Recorder {
	now := time.Now()
	r := &Recorder{m: m, began: now, origin: time.Duration(now.UnixNano())}
	m.next, m.version = 0, version
	r.Stamp()
	return r
}

// Note writes an event. What its kind does not have is 0; a rank of -1 is any.
//
//go:nosplit
func (r *Recorder) Note(k Kind, context uint32, rank, tag, bytes int) {
	m := r.m
	i := m.next
	e := record{uint64(context)<<32 | uint64(uint32(rank)<<8) | uint64(k),
		uint64(bytes)<<32 | uint64(uint32(tag))}
	if e == r.latest {
		// A stream of equal messages takes one record, and one line of the cache.
		if last := &m.ring[(i-1)%entries]; last[0] == uint64(repeated) {
			last[1]++
			return
		}
		e = record{uint64(repeated), 1}
	} else {
		r.latest = e
	}
	if i%stampEvery == 0 {
		i = r.stampAt(i)
	}
	m.ring[i%entries] = e
	m.next = i + 1
}

// Stamp writes what time it is.
func (r *Recorder) Stamp() { r.m.next = r.stampAt(r.m.next) }

// StampNew is Stamp if any record has been written since the latest stamp.
func (r *Recorder) StampNew() {
	if r.stamped != r.m.next {
		r.Stamp()
	}
}

//go:noinline
func (r *Recorder) stampAt(i uint64) (next uint64) {
	r.m.ring[i%entries] = record{uint64(stamp), uint64(r.origin + time.Since(r.began))}
	r.stamped = i + 1
	return i + 1
}

// NameOperations says what the numbers of collectives stand for.
func (r *Recorder) NameOperations(names []string) {
	for i, name := range names[:min(len(names), maxOperations)] {
		copy(r.m.operations[i][:], name)
	}
}

// A Ring is the memory of a rank's recorder, as the agent has it.
type Ring struct{ bytes []byte }

// NewRing makes the memory, and a descriptor for the rank.
func NewRing() (*Ring, int, error) {
	fd, err := sys.SharedMemory(Size)
	if err != nil {
		return nil, -1, err
	}
	b, err := sys.MapShared(fd, Size)
	if err != nil {
		return nil, -1, errors.Join(err, syscall.Close(fd))
	}
	return &Ring{b}, fd, nil
}

// Copy returns what is there now. The rank may write meanwhile, so that records may be torn.
func (r *Ring) Copy() []byte { return bytes.Clone(r.bytes) }

// Close gives the memory up; a rank that lives keeps its own mapping.
func (r *Ring) Close() error { return sys.UnmapShared(r.bytes) }
