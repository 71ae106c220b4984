package perfetto

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxPacket bounds a packet that is read.
const maxPacket = 1 << 20

// ErrNoTrace is the error for a file that is not a trace.
var ErrNoTrace = errors.New("no trace in Perfetto's format")

// Reader reads the packets of a trace.
type Reader struct{ in *bufio.Reader }

// NewReader returns a reader of a trace.
func NewReader(in io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(in, 1<<16)} }

// Next returns the next packet; io.EOF after the last one. It omits fields that weft does not use.
func (r *Reader) Next() (*Packet, error) {
	tag, err := binary.ReadUvarint(r.in)
	if err == io.EOF {
		return nil, io.EOF
	}
	if err != nil || tag != tracePacket<<3|uint64(protowire.BytesType) {
		return nil, ErrNoTrace
	}
	n, err := binary.ReadUvarint(r.in)
	if err != nil || n > maxPacket {
		return nil, fmt.Errorf("%w: a packet of %d bytes", ErrNoTrace, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r.in, body); err != nil {
		return nil, fmt.Errorf("%w: it ends within a packet", ErrNoTrace)
	}
	p := &Packet{}
	err = fields(body, func(f field) error {
		switch f.number {
		case packetTime:
			p.Time = f.value
		case packetSeq:
			p.Sequence = uint32(f.value)
		case packetFlag:
			p.Flags = f.value
		case packetInt:
			p.Interned = &Interned{}
			return p.Interned.read(f.bytes)
		case packetTrk:
			p.Track = &Track{}
			return p.Track.read(f.bytes)
		case packetEvt:
			p.Event = &Event{}
			return p.Event.read(f.bytes)
		}
		return nil
	})
	return p, err
}

// field is one field of a message: a number, or bytes.
type field struct {
	number protowire.Number
	value  uint64
	bytes  []byte
}

// fields calls each for all fields of a message.
func fields(b []byte, each func(field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrNoTrace, protowire.ParseError(n))
		}
		b = b[n:]
		f := field{number: number}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrNoTrace, protowire.ParseError(n))
		}
		b = b[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

func (i *Interned) read(b []byte) error {
	return fields(b, func(f field) error {
		var n Name
		err := fields(f.bytes, func(f field) error {
			switch f.number {
			case nameID:
				n.ID = f.value
			case nameText:
				n.Text = string(f.bytes)
			}
			return nil
		})
		switch f.number {
		case internedCategory:
			i.Categories = append(i.Categories, n)
		case internedName:
			i.Names = append(i.Names, n)
		case internedAnnotation:
			i.Annotations = append(i.Annotations, n)
		}
		return err
	})
}

func (t *Track) read(b []byte) error {
	return fields(b, func(f field) error {
		switch f.number {
		case trackID:
			t.ID = f.value
		case trackParent:
			t.Parent = f.value
		case trackName:
			t.Name = string(f.bytes)
		case trackProcess:
			t.Process = &Process{}
			return fields(f.bytes, func(f field) error {
				switch f.number {
				case processPID:
					t.Process.PID = int32(f.value)
				case processName:
					t.Process.Name = string(f.bytes)
				case processLabel:
					t.Process.Labels = append(t.Process.Labels, string(f.bytes))
				}
				return nil
			})
		case trackCounter:
			t.Counter = Count
			return fields(f.bytes, func(f field) error {
				if f.number == counterUnit {
					t.Counter = Unit(f.value)
				}
				return nil
			})
		}
		return nil
	})
}

func (e *Event) read(b []byte) error {
	return fields(b, func(f field) error {
		switch f.number {
		case eventType:
			e.Type = Type(f.value)
		case eventTrack:
			e.Track = f.value
		case eventName:
			e.Name = f.value
		case eventCategory:
			e.Category = f.value
		case eventValue:
			e.Value = int64(f.value)
		case eventFlow:
			e.Flows = append(e.Flows, f.value)
		case eventFlowEnd:
			e.Ends = append(e.Ends, f.value)
		case eventAnnotation:
			var a Annotation
			err := fields(f.bytes, func(f field) error {
				switch f.number {
				case annotationName:
					a.Name = f.value
				case annotationNumber:
					v := int64(f.value)
					a.Number = &v
				case annotationText:
					a.Text = string(f.bytes)
				}
				return nil
			})
			e.Annotations = append(e.Annotations, a)
			return err
		}
		return nil
	})
}
