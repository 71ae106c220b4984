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
	version    = 3
	headBytes  = 4096
)

// Size is how many bytes the memory of a recorder has: a page that tells how far the ring is filled, and the
// ring.
const Size = headBytes + entries*16

// record is an event in two words: tag and context, 32 bits each; kind in 8 bits, rank in 24 and bytes in 32.
// A stamp has its time in the first one, a repetition its number.
type record [2]uint64

func (r *record) kind() Kind { return Kind(r[1]) }

// memory is what the rank and the agent share. The rank alone writes there.
type memory struct {
	next       uint64 // number of the record that is written next, from 0
	version    uint64
	repeats    uint64                         // events since the latest two records: these in turn
	operations [maxOperations][nameBytes]byte // the names of collectives, by number
	_          [headBytes - 24 - maxOperations*nameBytes]byte
	ring       [entries]record
}

// Limits of the names of collectives.
const (
	maxOperations = 32
	nameBytes     = 24
)

// Recorder writes the events of a rank. Its user has a lock around it.
type Recorder struct {
	m *memory
	// what Expect was told of: the words of the event but for its bytes, and how many of those it has if it
	// is only to be counted; -1 if it is not
	first, second uint64
	expected      int

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
	m.next, m.version, m.repeats = 0, version, 0
	r.Stamp()
	return r
}

// Note writes an event. What its kind does not have is 0; a rank of -1 is any. An event that is equal to the
// one before the latest is only counted: a stream of equal messages, or of messages and their answers, stays
// in one line of the cache.
func (r *Recorder) Note(k Kind, context uint32, rank, tag, bytes int) {
	r.note(words(k, context, rank, tag, bytes))
}

// words are those of a record.
func words(k Kind, context uint32, rank, tag, bytes int) (first, second uint64) {
	return uint64(context)<<32 | uint64(uint32(tag)), uint64(bytes)<<32 | uint64(uint32(rank)<<8) | uint64(k)
}

//go:nosplit
func (r *Recorder) note(first, second uint64) {
	r.expected = -1
	m := r.m
	if turn := m.turn(); turn[0] == first && turn[1] == second {
		m.repeats++
		return
	}
	r.write(first, second)
}

// turn is the record whose turn it is again, of the latest two: the first one after an even number of
// repetitions.
func (m *memory) turn() *record { return &m.ring[(m.next-2+m.repeats%2)%entries] }

// Expect compares an event that may come next with those before it, while there is time for that. Its bytes
// are not known yet.
func (r *Recorder) Expect(k Kind, context uint32, rank, tag int) {
	r.first, r.second = words(k, context, rank, tag, 0)
	r.expected = -1
	if turn := r.m.turn(); turn[0] == r.first && uint32(turn[1]) == uint32(r.second) {
		r.expected = int(turn[1] >> 32)
	}
}

// NoteExpected is Note of the event that Expect was told of. It may be called once after that, and most often
// it only compares and counts: less than Note, when the event has come and somebody waits.
func (r *Recorder) NoteExpected(bytes int) {
	if bytes == r.expected {
		r.m.repeats++
	} else {
		r.note(r.first, r.second|uint64(bytes)<<32)
	}
}

// NoteTimes is Note of an event that has come several times in a row.
func (r *Recorder) NoteTimes(k Kind, context uint32, rank, tag, bytes, times int) {
	first, second := words(k, context, rank, tag, bytes)
	r.expected = -1
	m, e := r.m, record{first, second}
	for ; times > 0; times-- {
		if m.ring[(m.next-1)%entries] == e && m.ring[(m.next-2)%entries] == e {
			m.repeats += uint64(times)
			return
		}
		r.note(first, second)
	}
}

// write writes an event, and before it how often the latest ones were repeated, and a stamp where one is due.
//
//go:noinline
func (r *Recorder) write(first, second uint64) {
	r.writeRepeats()
	m := r.m
	if m.next%stampEvery == 0 {
		r.Stamp()
	}
	m.ring[m.next%entries] = record{first, second}
	m.next++
	// The ring comes round so rarely that its next line is in no near cache. To wait for that would delay all
	// stores behind it, those of a message to a peer too.
	sys.PrefetchWrite(uintptr(unsafe.Pointer(&m.ring[(m.next+lineRecords)%entries])))
}

// lineRecords is how many records a line of the cache has.
const lineRecords = 4

func (r *Recorder) writeRepeats() {
	if m := r.m; m.repeats > 0 {
		m.ring[m.next%entries] = record{m.repeats, uint64(repeated)}
		m.next++
		m.repeats = 0
	}
}

// Stamp writes what time it is.
func (r *Recorder) Stamp() {
	r.expected = -1
	r.writeRepeats()
	m := r.m
	m.ring[m.next%entries] = record{uint64(r.origin + time.Since(r.began)), uint64(stamp)}
	m.next++
	r.stamped = m.next
}

// StampNew is Stamp if any event has been noted since the latest stamp.
func (r *Recorder) StampNew() {
	if r.stamped != r.m.next || r.m.repeats > 0 {
		r.Stamp()
	}
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
