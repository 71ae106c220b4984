package trace

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Rank is the decoded trace of a rank.
type Rank struct {
	Head
	records []byte // encoded; checked
}

// Records returns the records, in the order in which they were written.
func (r *Rank) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		var at int64
		for b := r.records; len(b) > 0; {
			e, rest, err := next(b, at)
			if err != nil || !yield(e) {
				return
			}
			b, at = rest, e.Time
		}
	}
}

// Head describes the records of a rank.
type Head struct {
	Version int
	Rank    int
	Size    int
	Clock   uint64 // of the clock of Epoch; equal at ranks with the same clock; 0 if unknown
	Base    uint64 // the clock of rank 0, to which Offsets relate
	Epoch   int64  // reading of that clock at time 0 of the records
	Wall    int64  // time of day at that moment, in ns since 1970
	Calls   []string
	Regions []string          `json:",omitempty"`
	Comms   map[uint32]string `json:",omitempty"` // names of communicators, by their first context
	Offsets []Offset          `json:",omitempty"`
	Omitted uint64            // records dropped for lack of room
	// Several is set if the rank has used several endpoints.
	Several bool `json:",omitempty"`
}

// Offset is how far the clock of rank 0 is ahead of this rank's.
type Offset struct {
	At    int64 // on this rank's clock
	Ahead int64
	Error int64 // at most
}

const (
	version = 3
	// maxHead bounds the head's encoding.
	maxHead = 8 << 20
	// maxTime bounds times, so that sums of several do not overflow.
	maxTime = 1 << 60
)

// Encode returns the contents of the buffer for Decode, with as many of the first records as fit into
// maxBytes. h has the fields that the buffer does not know.
func (b *Buffer) Encode(h Head, maxBytes int) ([]byte, error) {
	records, omitted := b.records()
	b.mu.Lock()
	h.Version, h.Omitted, h.Regions = version, omitted, slices.Clone(b.names)
	b.mu.Unlock()
	var body []byte
	var last Record
	for i := range records {
		before := len(body)
		body = records[i].append(body, last.Time)
		if len(body)+maxHead > maxBytes {
			body = body[:before]
			h.Omitted += uint64(len(records) - i)
			break
		}
		last = records[i]
	}
	head, err := json.Marshal(h)
	if err != nil || len(head) > maxHead {
		return nil, errors.Join(err, fmt.Errorf("the head of a trace has %d bytes", len(head)))
	}
	out := binary.AppendUvarint(make([]byte, 0, len(head)+len(body)+8), uint64(len(head)))
	return append(append(out, head...), body...), nil
}

func (r *Record) append(b []byte, before int64) []byte {
	b = append(b, byte(r.Kind), r.What)
	b = binary.AppendVarint(b, r.Time-before)
	b = binary.AppendUvarint(b, uint64(r.Goroutine))
	b = binary.AppendUvarint(b, uint64(r.Bytes))
	b = binary.AppendUvarint(b, uint64(r.Context))
	b = binary.AppendVarint(b, int64(r.Peer))
	return binary.AppendVarint(b, int64(r.Tag))
}

var errShort = errors.New("a trace that ends within a record")

// Decode decodes a rank's trace. It does not trust the rank.
func Decode(b []byte) (*Rank, error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > maxHead || n > uint64(len(b)-used) {
		return nil, errors.New("a trace without a head")
	}
	r := &Rank{}
	if err := json.Unmarshal(b[used:used+int(n)], &r.Head); err != nil {
		return nil, fmt.Errorf("the head of a trace: %w", err)
	}
	if r.Version != version {
		return nil, fmt.Errorf("a trace of version %d, not %d", r.Version, version)
	}
	times := []int64{r.Epoch}
	for _, o := range r.Offsets {
		times = append(times, o.At, o.Ahead, o.Error)
	}
	for _, t := range times {
		if t < -maxTime || t > maxTime {
			return nil, fmt.Errorf("a trace with a time of %d ns", t)
		}
	}
	r.records = b[used+int(n):]
	var at int64
	for b := r.records; len(b) > 0; {
		e, rest, err := next(b, at)
		if err != nil {
			return nil, err
		}
		b, at = rest, e.Time
	}
	return r, nil
}

// next cuts off a record, whose time is relative to the previous one.
func next(b []byte, before int64) (r Record, rest []byte, err error) {
	if len(b) < 2 {
		return r, nil, errShort
	}
	r.Kind, r.What = Kind(b[0]), b[1]
	b = b[2:]
	unsigned := func(limit uint64) uint64 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > limit {
			err = errShort
			return 0
		}
		b = b[used:]
		return n
	}
	signed := func(low, high int64) int64 {
		n, used := binary.Varint(b)
		if used <= 0 || n < low || n > high {
			err = errShort
			return 0
		}
		b = b[used:]
		return n
	}
	r.Time = before + signed(-math.MaxInt32, maxTime)
	r.Goroutine = uint32(unsigned(math.MaxUint32))
	r.Bytes = int64(unsigned(MaxBytes))
	r.Context = uint32(unsigned(math.MaxUint32))
	r.Peer = int32(signed(math.MinInt32, math.MaxInt32))
	r.Tag = int32(signed(math.MinInt32, math.MaxInt32))
	if err == nil && (r.Kind == 0 || r.Kind >= kinds || r.Time < 0 || r.Time > maxTime) {
		err = fmt.Errorf("a trace with a record of kind %d at %d", r.Kind, r.Time)
	}
	return r, b, err
}
