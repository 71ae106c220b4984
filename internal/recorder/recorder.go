// Package recorder keeps the last events of a rank in memory that outlives it: a ring of records for each
// endpoint. The rank shares it with its launcher's agent, which reads it when something has gone wrong,
// however the rank has ended.
//
// A record has no time of its own: reading a clock costs many times what a record does. Some records are
// stamps instead, which say when they were written: one in each stampEvery records, and one wherever the rank
// has the time for it, because it waits. The times of the events between two stamps are interpolated.
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
	entries    = 4096 // of the ring, 64 KiB
	stampEvery = 256  // records of which at least one is a stamp
	version    = 6
	headBytes  = 4096
)

// partSize is how many bytes the memory of an endpoint has: a page that tells how far the ring is filled, and
// the ring.
const partSize = headBytes + entries*16

// Size is how many bytes the memory of a rank has. It is sparse: an endpoint that is not in use has no pages.
const Size = contextid.MaxEndpoints * partSize

// record is an event in two words: tag and context, 32 bits each; kind in 8 bits, rank in 24 and bytes in 32.
// A stamp has its time in the first one, a record that counts others their number.
type record [2]uint64

func (r *record) kind() Kind { return Kind(r[1]) }

// run is an event that has come so many times, one right after the other.
type run struct{ first, second, times uint64 }

// parts is what the rank and the agent share. The rank alone writes there.
type parts [contextid.MaxEndpoints]memory

// memory is that of an endpoint.
//
// A run is written to the ring when another event ends it; but where it is equal to the one before the latest
// it is only counted. So a stream of equal messages stays in one line of the cache, and so does an exchange
// in which messages, or series of them, and their answers come in turn.
type memory struct {
	next    uint64 // number of the record that is written next, from 0
	version uint64
	written uint64 // runs that had ended when the latest one was written: those after it came in turn
	_       [5]uint64

	// what changes with every event, in one line of the cache
	ended   uint64 // runs that have ended
	present [2]run // the run under way, at ended mod 2; so the step of ended ends one and begins another
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

// Recorder writes the events of an endpoint of a rank. Its user has a lock around it.
type Recorder struct {
	m      *memory
	shared *parts // nil for memory of its own
	// how often the events of the two present runs have to come, one right after the other, for a run to be
	// equal to the one before the latest; never where the ring does not end with that
	due [2]uint64
	// what Expect was told of: the words of the event, and its bytes if it is its turn again; else -1
	first, second uint64
	expected      int

	stamped uint64        // how many records there were with the latest stamp
	began   time.Time     // what the times of stamps are relative to
	origin  time.Duration // its time, since 1970
}

const never = math.MaxUint64

// New returns a recorder that writes to memory of its own, where nobody but this process can read it.
func New() *Recorder { return newRecorder(new(memory), nil) }

// Open returns the recorder of the first endpoint, which writes to shared memory that it maps. The descriptor
// can be closed after it.
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

// OfEndpoint returns the recorder of another endpoint of the same rank. It is called once for each.
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

// Note writes an event. What its kind does not have is 0; a rank of -1 is any.
func (r *Recorder) Note(k Kind, context uint32, rank, tag, bytes int) {
	first, second := words(k, context, rank, tag, bytes)
	r.note(first, second, 1)
}

// NoteTimes is Note of an event that has come several times in a row.
func (r *Recorder) NoteTimes(k Kind, context uint32, rank, tag, bytes, times int) {
	first, second := words(k, context, rank, tag, bytes)
	r.note(first, second, uint64(times))
}

// words are those of a record.
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
		next.times = times // it is its turn again
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

// runs are the run under way and the place of the next, which has the one before it.
func (m *memory) runs() (now, next *run) { return &m.present[m.ended%2], &m.present[(m.ended+1)%2] }

// Expect prepares for an event that may come next, and most likely has so many bytes, while there is time for
// that.
func (r *Recorder) Expect(k Kind, context uint32, rank, tag, bytes int) {
	r.first, r.second = words(k, context, rank, tag, bytes)
	r.expected = -1
	now, next := r.m.runs()
	if next.first == r.first && next.second == r.second && now.times == r.due[r.m.ended%2] {
		next.times = 1
		r.expected = bytes
	}
}

// NoteExpected is Note of the event that Expect was told of. It may be called once after that, and most often
// it only compares and counts: less than Note, when the event has come and somebody waits.
func (r *Recorder) NoteExpected(bytes int) {
	if bytes == r.expected {
		r.m.ended++
	} else {
		r.note(r.first, r.second&math.MaxUint32|uint64(bytes)<<32, 1)
	}
}

// write writes a run that ends, and before it how often the latest ones came in turn, and a stamp where one
// is due.
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

// writeTurns writes how many runs came in turn, if any did.
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

// Stamp writes what time it is.
func (r *Recorder) Stamp() {
	r.expected = -1
	if now, _ := r.m.runs(); now.times > 0 {
		r.note(0, 0, 0) // a run of nothing, which leaves no record
	}
	r.writeTurns()
	r.writeStamp()
	r.due = [2]uint64{never, never}
}

func (r *Recorder) writeStamp() {
	r.put(record{uint64(r.origin + time.Since(r.began)), uint64(stamp)})
	r.stamped = r.m.next
}

// StampNew is Stamp if any event has been noted since the latest stamp.
func (r *Recorder) StampNew() {
	if now, _ := r.m.runs(); now.times > 0 {
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

// Copy returns what is there now, up to the last endpoint in use. The rank may write meanwhile, so that
// records may be torn.
func (r *Ring) Copy() []byte {
	n := contextid.MaxEndpoints
	for n > 1 && (*parts)(unsafe.Pointer(&r.bytes[0]))[n-1].version == 0 {
		n--
	}
	return bytes.Clone(r.bytes[:n*partSize])
}

// Close gives the memory up; a rank that lives keeps its own mapping.
func (r *Ring) Close() error { return sys.UnmapShared(r.bytes) }
