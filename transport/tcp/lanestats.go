package tcp

import (
	"sync"

	"github.com/weft-mpi/weft/transport"
)

// laneCounts sums the lane statistics of a device's queue pairs.
type laneCounts struct {
	mu    sync.Mutex
	stats transport.LaneStats
}

// laneStats returns the statistics of the queue pair's lanes.
func (m *multiLane) laneStats() transport.LaneStats {
	s, h := m.stats, &m.recv.in.Stats
	s.Lanes = len(m.conns)
	s.Holes, s.MaxHoles, s.HolesClosed, s.LongestHole, s.HoleTime = h.Open, h.MaxOpen, h.Closed, h.Longest,
		h.Total
	return s
}

// laneName returns the Lane with a number: number+1, because 0 is AnyLane.
func laneName(number uint16) transport.Lane { return transport.Lane(number) + 1 }

func (m *multiLane) openLanes(to []transport.LaneAttr) []transport.LaneAttr {
	for _, l := range m.conns {
		to = append(to, transport.LaneAttr{Lane: laneName(l.number), ReadBytes: l.readBytes})
	}
	return to
}

// publish adds the changes since the last call to the device's statistics.
func (m *multiLane) publish() {
	now := m.laneStats()
	if now == m.shown {
		return
	}
	c, was := &m.q.dev.lanes, m.shown
	m.shown = now
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.stats
	s.Lanes += now.Lanes - was.Lanes
	s.Down += now.Down - was.Down
	s.Up += now.Up - was.Up
	s.Resent += now.Resent - was.Resent
	s.Duplicates += now.Duplicates - was.Duplicates
	s.Holes += now.Holes - was.Holes
	s.MaxHoles = max(s.MaxHoles, now.MaxHoles)
	s.HolesClosed += now.HolesClosed - was.HolesClosed
	s.LongestHole = max(s.LongestHole, now.LongestHole)
	s.HoleTime += now.HoleTime - was.HoleTime
}

// Lanes returns the statistics of the queue pair's lanes.
func (q *qp) Lanes() transport.LaneStats {
	return q.sequencer.laneStats()
}

// OpenLanes appends the lanes that carry the queue pair.
func (q *qp) OpenLanes(to []transport.LaneAttr) []transport.LaneAttr {
	return q.sequencer.openLanes(to)
}

// Lanes returns the statistics of all lanes of the device's queue pairs, past and present.
func (d *Device) Lanes() transport.LaneStats {
	d.lanes.mu.Lock()
	defer d.lanes.mu.Unlock()
	return d.lanes.stats
}
