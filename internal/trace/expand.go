package trace

import (
	"cmp"
	"slices"
	"time"
)

// clock converts stamps to ns.
type clock struct {
	tick, at int64 // a stamp, and the same moment in ns
	scale    float64
}

// clock returns the clock by the time from UseTicks to now, which is at least a millisecond.
func (b *Buffer) clock() clock {
	if !b.ticks {
		return clock{scale: 1}
	}
	tick, ns := b.pair()
	for ns-b.firstNs < int64(time.Millisecond) {
		tick, ns = b.pair()
	}
	return clock{b.firstTick, b.firstNs, float64(ns-b.firstNs) / float64(tick-b.firstTick)}
}

func (c clock) ns(stamp int64) int64 { return c.at + int64(float64(stamp-c.tick)*c.scale) }

// records returns the records of the entries, by time, and the number of omitted entries. Messages are in the
// order in which they were added.
func (b *Buffer) records() (list []Record, omitted uint64) {
	n := b.next.Load()
	kept := min(n, uint64(len(b.entries)))
	clock, tracks := b.clock(), map[uint32]*track{}
	var latest int64 // of messages
	for i := range b.entries[:kept] {
		e := b.read(i)
		if e.head == 0 {
			omitted++ // being written
			continue
		}
		t := tracks[e.goroutine]
		if t == nil {
			t = &track{}
			tracks[e.goroutine] = t
		}
		r := Record{Time: clock.ns(e.time), Bytes: int64(e.head & MaxBytes), Context: e.context, Tag: e.tag,
			Peer: e.peer, Goroutine: e.goroutine, Kind: Kind(e.head >> (bytesBits + 8)),
			What: uint8(e.head >> bytesBits)}
		switch r.Kind {
		case Sent, Matched, Withdrawn:
			latest = max(latest, r.Time)
			r.Time = latest
			t.list = append(t.list, r)
		case call, receive:
			ended := clock.ns(e.ends)
			if r.Kind == receive {
				latest = max(latest, ended)
				ended = latest
			}
			t.call(r, ended)
		case Sleeps:
			t.asleep = r
			continue
		default:
			switch r.Kind {
			case CallBegin:
				t.open++
			case CallEnd:
				t.open--
			}
			t.list = append(t.list, r)
		}
		t.asleep = Record{}
	}
	for _, t := range tracks {
		if r := t.asleep; r.Kind != 0 && t.open == 0 {
			r.Kind = CallBegin
			t.list = append(t.list, r)
		}
		list = append(list, t.list...)
	}
	slices.SortStableFunc(list, func(a, b Record) int { return cmp.Compare(a.Time, b.Time) })
	return list, omitted + n - kept
}

// read reads an entry that may be written concurrently.
//
//go:norace
func (b *Buffer) read(i int) entry { return b.entries[i] }

// track has the records of a goroutine.
type track struct {
	list   []Record
	asleep Record // the latest entry, if it is a Sleeps
	open   int    // calls with only a beginning
}

// call adds a call that has ended. Its beginning goes before the records added since.
func (t *track) call(r Record, ended int64) {
	begin, matched, end := r, r, Record{Time: ended, Goroutine: r.Goroutine, Kind: CallEnd}
	begin.Kind, begin.Context = CallBegin, 0
	matched.Kind, matched.What, matched.Time = Matched, 0, ended
	at := len(t.list)
	for at > 0 && (t.list[at-1].Time > r.Time || t.list[at-1].Time == r.Time && t.list[at-1].within()) {
		at--
	}
	t.list = slices.Insert(t.list, at, begin)
	if r.Kind == receive {
		t.list = append(t.list, matched)
	}
	t.list = append(t.list, end)
}

// within reports whether a record is of an event within a call.
func (r *Record) within() bool {
	return r.Kind == Sent || r.Kind == Matched || r.Kind == Withdrawn || r.Kind == Slept || r.Kind == Phase
}
