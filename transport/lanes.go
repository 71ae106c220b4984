package transport

import "time"

// LaneCounter is the part of a QP that reports on the connections that carry it. It is available if
// DeviceAttr.Lanes is set.
type LaneCounter interface {
	// Lanes returns the counters of the queue pair's lanes. They are zero for a queue pair without lanes.
	Lanes() LaneStats

	// OpenLanes appends the lanes that carry the queue pair now; none for a queue pair without lanes.
	OpenLanes(to []LaneAttr) []LaneAttr
}

// Lane identifies one of the connections that carry a queue pair, the same at both ends. A connection that
// replaces a lost one has a Lane of its own.
type Lane uint32

const (
	AnyLane Lane = 0       // no lane in particular
	MaxLane Lane = 1 << 16 // the largest Lane
)

// LaneAttr describes a lane.
type LaneAttr struct {
	Lane      Lane
	ReadBytes uint64 // received over it for this end's Reads
}

// LaneStats counts lanes, and holes in the sequence of frames that they carry: a hole is a gap, a part of the
// sequence that has not arrived although a later part has.
type LaneStats struct {
	Lanes      int    // that carry the queue pair now
	Down       uint64 // lanes that were lost
	Up         uint64 // lanes that were re-established, or joined
	Resent     uint64 // bytes that were resent
	Duplicates uint64 // frames that had already arrived, and were dropped

	Holes       int           // open now
	MaxHoles    int           // most open at once in one queue pair
	HolesClosed uint64        // closed since the beginning
	LongestHole time.Duration // of those that are closed
	HoleTime    time.Duration // of those that are closed, in total
}
