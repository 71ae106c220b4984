package transport

import "time"

// LaneCounter is the part of a QP that tells of the connections that carry it. It is there where
// DeviceAttr.Lanes says so.
type LaneCounter interface {
	// Lanes tells what has happened to the queue pair's lanes so far. A queue pair without lanes has zeros.
	Lanes() LaneStats
}

// LaneStats are counts of lanes, and of holes in what they carry: a hole is a stretch of a queue pair's
// sequence that has not come while something after it has.
type LaneStats struct {
	Lanes      int    // that carry the queue pair now
	Down       uint64 // lanes that were lost
	Up         uint64 // lanes that were made anew, or joined
	Resent     uint64 // bytes that were sent again
	Duplicates uint64 // segments that had come before, and were dropped

	Holes       int           // open now
	MaxHoles    int           // open at once in one queue pair
	HolesClosed uint64        //
	LongestHole time.Duration // of those that are closed
	HoleTime    time.Duration // of those that are closed, in total
}
