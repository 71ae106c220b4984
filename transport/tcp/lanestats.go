package tcp

import "github.com/weft-mpi/weft/transport"

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

// Lanes returns the statistics of the queue pair's lanes.
func (q *qp) Lanes() transport.LaneStats {
	return q.sequencer.laneStats()
}

// OpenLanes appends the lanes that carry the queue pair.
func (q *qp) OpenLanes(to []transport.LaneAttr) []transport.LaneAttr {
	return q.sequencer.openLanes(to)
}
