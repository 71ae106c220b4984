// Package perfetto reads and writes the part of Perfetto's trace format that weft uses: packets with tracks,
// slices, instants, counters, flows and interned names. The field numbers are those of
// protos/perfetto/trace in github.com/google/perfetto.
package perfetto

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Packet is a TracePacket. Its parts may be nil.
type Packet struct {
	Time     uint64 // ns
	Sequence uint32 // packets of a sequence share interned data; never 0
	Flags    uint64
	Interned *Interned
	Track    *Track
	Event    *Event
}

// Flags of a packet.
const (
	Cleared       = 1 // names that the sequence interned before are no longer valid
	NeedsInterned = 2
)

// Interned are names for this and the following packets of the sequence.
type Interned struct{ Categories, Names, Annotations []Name }

// Name is an interned name. Numbers begin at 1.
type Name struct {
	ID   uint64
	Text string
}

// Track is a TrackDescriptor. Events are on tracks.
type Track struct {
	ID, Parent uint64 // Parent is 0 for none
	Name       string
	Process    *Process // nil for a track that is no process
	Counter    Unit     // 0 for a track that is no counter
}

// Process is a ProcessDescriptor.
type Process struct {
	PID    int32
	Name   string
	Labels []string
}

// Unit is the unit of a counter.
type Unit int

const (
	Count Unit = 2
	Bytes Unit = 3
)

// Type is the type of an event.
type Type int

const (
	SliceBegin Type = iota + 1
	SliceEnd
	Instant
	Counter
)

// Event is a TrackEvent.
type Event struct {
	Type        Type
	Track       uint64
	Name        uint64 // interned; 0 for none
	Category    uint64 // likewise
	Value       int64  // of a counter
	Flows, Ends []uint64
	Annotations []Annotation
}

// Annotation is a DebugAnnotation: a number, or a text if Number is nil.
type Annotation struct {
	Name   uint64 // interned
	Number *int64
	Text   string
}

// Field numbers.
const (
	tracePacket = 1

	packetTime = 8
	packetSeq  = 10
	packetEvt  = 11
	packetInt  = 12
	packetFlag = 13
	packetTrk  = 60

	internedCategory   = 1
	internedName       = 2
	internedAnnotation = 3
	nameID             = 1
	nameText           = 2

	trackID      = 1
	trackName    = 2
	trackProcess = 3
	trackParent  = 5
	trackCounter = 8

	processPID   = 1
	processName  = 6
	processLabel = 8

	counterUnit = 3

	eventCategory   = 3
	eventAnnotation = 4
	eventType       = 9
	eventName       = 10
	eventTrack      = 11
	eventValue      = 30
	eventFlow       = 47
	eventFlowEnd    = 48

	annotationName   = 1
	annotationNumber = 4
	annotationText   = 6
)

// Append appends the packet as a part of a trace. Traces are their packets, one after the other.
func (p *Packet) Append(b []byte) []byte {
	var body []byte
	if p.Event != nil {
		body = number(body, packetTime, p.Time)
	}
	body = number(body, packetSeq, uint64(p.Sequence))
	if p.Flags != 0 {
		body = number(body, packetFlag, p.Flags)
	}
	if p.Interned != nil {
		body = message(body, packetInt, p.Interned.append(nil))
	}
	if p.Track != nil {
		body = message(body, packetTrk, p.Track.append(nil))
	}
	if p.Event != nil {
		body = message(body, packetEvt, p.Event.append(nil))
	}
	return message(b, tracePacket, body)
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func message(b []byte, field protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), body)
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func (n *Interned) append(b []byte) []byte {
	for i, list := range [...][]Name{n.Categories, n.Names, n.Annotations} {
		for _, name := range list {
			b = message(b, protowire.Number(internedCategory+i),
				text(number(nil, nameID, name.ID), nameText, name.Text))
		}
	}
	return b
}

func (t *Track) append(b []byte) []byte {
	b = number(b, trackID, t.ID)
	if t.Parent != 0 {
		b = number(b, trackParent, t.Parent)
	}
	if t.Name != "" {
		b = text(b, trackName, t.Name)
	}
	if p := t.Process; p != nil {
		body := text(number(nil, processPID, uint64(p.PID)), processName, p.Name)
		for _, label := range p.Labels {
			body = text(body, processLabel, label)
		}
		b = message(b, trackProcess, body)
	}
	if t.Counter != 0 {
		b = message(b, trackCounter, number(nil, counterUnit, uint64(t.Counter)))
	}
	return b
}

func (e *Event) append(b []byte) []byte {
	b = number(b, eventType, uint64(e.Type))
	b = number(b, eventTrack, e.Track)
	if e.Category != 0 {
		b = number(b, eventCategory, e.Category)
	}
	if e.Name != 0 {
		b = number(b, eventName, e.Name)
	}
	if e.Type == Counter {
		b = number(b, eventValue, uint64(e.Value))
	}
	for i := range e.Annotations {
		a := &e.Annotations[i]
		body := number(nil, annotationName, a.Name)
		if a.Number != nil {
			body = number(body, annotationNumber, uint64(*a.Number))
		} else {
			body = text(body, annotationText, a.Text)
		}
		b = message(b, eventAnnotation, body)
	}
	for _, id := range e.Flows {
		b = protowire.AppendFixed64(protowire.AppendTag(b, eventFlow, protowire.Fixed64Type), id)
	}
	for _, id := range e.Ends {
		b = protowire.AppendFixed64(protowire.AppendTag(b, eventFlowEnd, protowire.Fixed64Type), id)
	}
	return b
}
