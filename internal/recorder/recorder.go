// Package recorder keeps the last events of a rank in memory that outlives it: a ring of records for each
// endpoint. The rank shares it with its launcher's agent, which can read it however the rank has ended.
//
// A record has no time: reading a clock costs many times as much as writing a record. Some records are stamps
// of the time: at least one in stampEvery records, and one whenever the rank waits. The times of events
// between two stamps are interpolated.
package recorder

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/sys"
)

const (
	entries    = 4096 // records of the ring, 64 KiB
	stampEvery = 256  // at least one in so many records is a stamp
	version    = 6
	headBytes  = 4096
)

// partSize is the size of an endpoint's memory in bytes: a page for the position in the ring, and the ring.
const partSize = headBytes + entries*16

// Size is the size of a rank's memory in bytes. It is sparse: an unused endpoint has no pages.
const Size = contextid.MaxEndpoints * partSize

// record is an event in two words: tag and context, 32 bits each; kind in 8 bits, rank in 24 and bytes in 32.
// A stamp has its time in the first word, and a record that counts others has their number there.
type record [2]uint64

func (r *record) kind() Kind { return Kind(r[1]) }

// run is an event and how often it happened in a row.
type run struct{ first, second, times uint64 }

// parts is the memory that the rank and the agent share. Only the rank writes to it.
type parts [contextid.MaxEndpoints]memory

// memory is the memory of an endpoint.
//
// A run is written to the ring when another event ends it, but only counted if it equals the last but one
// run. So a stream of equal messages stays in one cache line, and so does an exchange in which messages, or
// series of them, alternate with their answers.
type memory struct {
	next    uint64 // number of the next record, from 0
	version uint64
	written uint64 // value of ended when the latest run was written: later runs came in turn
	_       [5]uint64

	// the fields that change with every event, in one cache line
	ended   uint64 // runs that have ended
	present [2]run // the current run is at ended mod 2, so incrementing ended ends one run and begins another
	_       uint64

	operations [maxOperations][nameBytes]byte // the names of collectives, by number
	_          [headBytes - 2*64 - maxOperations*nameBytes]byte
	ring       [entries]record
}

// Limits of the names of collectives.
const (
	maxOperations = 32
	nameBytes     = 24
)

// Recorder writes the events of an endpoint of a rank. The caller serializes its methods.
type Recorder struct {
	m      *memory
	shared *parts // nil for memory of its own
	// how often the events of the two present runs must happen in a row for a run to equal the last but one
	// run; never reached if the ring does not end with that run
	due [2]uint64
	// the event of Expect: its words, and its bytes if it repeats the last but one run; else -1
	first, second uint64
	expected      int

	stamped uint64        // number of records at the latest stamp
	began   time.Time     // times of stamps are relative to this
	origin  time.Duration // the time of began, since 1970
}

const never = math.MaxUint64

// New returns a recorder with private memory.
func New() *Recorder { return newRecorder(new(memory), nil) }

// Open returns the recorder of the first endpoint, which writes to shared memory that it maps. The descriptor
// can be closed afterwards.
func Open(fd int) (*Recorder, error) {
	if err := sys.CheckShared(fd, Size); err != nil {
		return nil, fmt.Errorf("memory of the recorder: %w", err)
	}
	b, err := sys.MapShared(fd, Size)
	if err != nil {
		return nil, fmt.Errorf("memory of the recorder: %w", err)
	}
	shared := (*parts)(unsafe.Pointer(&b[0]))
	return newRecorder(&shared[0], shared), nil
}

// OfEndpoint returns the recorder of another endpoint of the same rank. Call it once for each.
func (r *Recorder) OfEndpoint(number int) *Recorder {
	if r.shared == nil {
		return New()
	}
	return newRecorder(&r.shared[number], r.shared)
}

func newRecorder(m *memory, shared *parts) *Recorder {
	now := time.Now()
	r := &Recorder{m: m, shared: shared, began: now, origin: time.Duration(now.UnixNano())}
	m.next, m.version, m.ended, m.written, m.present = 0, version, 0, 0, [2]run{}
	r.Stamp()
	return r
}

// Note records an event. Arguments that its kind does not have are 0; a rank of -1 means any.
func (r *Recorder) Note(k Kind, context uint32, rank, tag, bytes int) {
	first, second := words(k, context, rank, tag, bytes)
	r.note(first, second, 1)
}

// NoteTimes is Note for an event that has happened several times in a row.
func (r *Recorder) NoteTimes(k Kind, context uint32, rank, tag, bytes, times int) {
	first, second := words(k, context, rank, tag, bytes)
	r.note(first, second, uint64(times))
}

// words returns the words of a record.
func words(k Kind, context uint32, rank, tag, bytes int) (first, second uint64) {
	return uint64(context)<<32 | uint64(uint32(tag)), uint64(bytes)<<32 | uint64(uint32(rank)<<8) | uint64(k)
}

//go:nosplit
func (r *Recorder) note(first, second, times uint64) {
	r.expected = -1
	m := r.m
	now, next := m.runs()
	switch {
	case next.first == first && next.second == second && now.times == r.due[m.ended%2]:
		next.times = times // it repeats the last but one run
	case now.first == first && now.second == second:
		now.times += times
		return
	default:
		if now.times != r.due[m.ended%2] {
			r.write(now)
		}
		if next.first != first || next.second != second {
			r.due[(m.ended+1)%2] = never
		}
		*next = run{first, second, times}
	}
	m.ended++
}

// runs returns the current run, and the place of the next one, which holds the previous run.
func (m *memory) runs() (now, next *run) { return &m.present[m.ended%2], &m.present[(m.ended+1)%2] }

// Expect prepares, during a wait, for an event that may come next and most likely has the given bytes.
func (r *Recorder) Expect(k Kind, context uint32, rank, tag, bytes int) {
	r.first, r.second = words(k, context, rank, tag, bytes)
	r.expected = -1
	now, next := r.m.runs()
	if next.first == r.first && next.second == r.second && now.times == r.due[r.m.ended%2] {
		next.times = 1
		r.expected = bytes
	}
}

// NoteExpected is Note for the event of Expect. It may be called once after that. Most often it only compares
// and counts, which is faster than Note.
func (r *Recorder) NoteExpected(bytes int) {
	if bytes == r.expected {
		r.m.ended++
	} else {
		r.note(r.first, r.second&math.MaxUint32|uint64(bytes)<<32, 1)
	}
}

// write writes a run that ends, preceded by the number of runs that came in turn, and by a stamp if one is
// due.
//
//go:noinline
func (r *Recorder) write(now *run) {
	m := r.m
	before := &r.due[(m.ended+1)%2]
	if r.writeTurns() {
		*before = never
	}
	if m.next-r.stamped >= stampEvery {
		r.writeStamp()
		*before = never
	}
	r.due[m.ended%2] = never
	if now.times > 0 {
		r.put(record{now.first, now.second})
		r.due[m.ended%2] = now.times
	}
	if now.times > 1 {
		r.put(record{now.times - 1, uint64(again)})
	}
	m.written = m.ended + 1
}

// writeTurns writes the number of runs that came in turn, if any.
func (r *Recorder) writeTurns() bool {
	m := r.m
	n := m.ended - m.written
	if n > 0 {
		r.put(record{n, uint64(turns)})
		m.written = m.ended
	}
	return n > 0
}

func (r *Recorder) put(rec record) {
	r.m.ring[r.m.next%entries] = rec
	r.m.next++
}

// Stamp writes the current time.
func (r *Recorder) Stamp() {
	r.expected = -1
	if now, _ := r.m.runs(); now.times > 0 {
		r.note(0, 0, 0) // an empty run, which leaves no record
	}
	r.writeTurns()
	r.writeStamp()
	r.due = [2]uint64{never, never}
}

func (r *Recorder) writeStamp() {
	r.put(record{uint64(r.origin + time.Since(r.began)), uint64(stamp)})
	r.stamped = r.m.next
}

// StampNew is Stamp if an event has been recorded since the latest stamp.
func (r *Recorder) StampNew() {
	if now, _ := r.m.runs(); now.times > 0 {
		r.Stamp()
	}
}

// NameOperations sets the names of collectives by number.
func (r *Recorder) NameOperations(names []string) {
	for i, name := range names[:min(len(names), maxOperations)] {
		copy(r.m.operations[i][:], name)
	}
}

// A Ring is the memory of a rank's recorder, as mapped by the agent.
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

// Copy returns a copy of the memory up to the last endpoint in use. The rank may write meanwhile, so records
// may be torn.
func (r *Ring) Copy() []byte {
	n := contextid.MaxEndpoints
	for n > 1 && (*parts)(unsafe.Pointer(&r.bytes[0]))[n-1].version == 0 {
		n--
	}
	return bytes.Clone(r.bytes[:n*partSize])
}

// Close unmaps the memory; a live rank keeps its own mapping.
func (r *Ring) Close() error { return sys.UnmapShared(r.bytes) }
