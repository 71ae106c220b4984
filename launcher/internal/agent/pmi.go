package agent

import "github.com/weft-mpi/weft/internal/pmi"

// maxPuts is how many bytes of keys and values make an Arrived full; the last pair may exceed it.
const maxPuts = 256 << 10

// A PMI is the part of an agent that serves its ranks PMI, without I/O: lines of ranks and commands go in,
// lines for ranks and events come out. It must be informed of each rank's end.
type PMI struct {
	server   *pmi.Server
	first    int // rank
	tell     bool
	barriers int // that have been passed
}

// NewPMI returns the PMI service for the ranks that are to be started.
func NewPMI(c Start) *PMI {
	ranks := make([]pmi.Rank, len(c.Ranks))
	for i, r := range c.Ranks {
		ranks[i] = pmi.Rank{ID: r.ID, Appnum: r.App}
	}
	p := &PMI{server: pmi.NewServer(c.PMI, ranks)}
	if len(ranks) > 0 {
		p.first = ranks[0].ID
	}
	return p
}

// State returns the state of a rank.
func (p *PMI) State(rank int) pmi.State { return p.server.State(rank) }

// Line handles a line of a rank, without its newline.
func (p *PMI) Line(rank int, line string) (replies []pmi.Reply, events []Event) {
	e, err := p.server.Handle(rank, line)
	switch err := err.(type) {
	case *pmi.Abort:
		return nil, []Event{Aborts{Rank: rank, Status: err.Code}}
	case *pmi.Violation:
		return nil, []Event{Disturbs{Rank: rank, What: err.What}}
	}
	if e.LostPeer {
		events = append(events, LostPeer{Rank: rank, Peer: e.Peer})
	}
	if p.tell && p.server.State(rank) == pmi.InBarrier {
		events = append(events, Waits{Rank: rank, Barrier: p.barriers})
	}
	return e.Replies, append(events, p.events(e)...)
}

// Gone notes that a rank has ended: its process and its PMI connection.
func (p *PMI) Gone(rank int) (replies []pmi.Reply, events []Event) {
	e := p.server.Gone(rank)
	return e.Replies, p.events(e)
}

// Do carries out a PMI command.
func (p *PMI) Do(c Command) (replies []pmi.Reply, events []Event) {
	switch c := c.(type) {
	case Release:
		p.barriers++
		return p.server.Release().Replies, nil
	case Found:
		return p.server.Found(c.Key, c.Value, c.OK).Replies, nil
	case TellWaits:
		p.tell = true
		for _, rank := range p.server.Waiting() {
			events = append(events, Waits{Rank: rank, Barrier: p.barriers})
		}
	}
	return nil, events
}

// events returns the events for the supervisor.
func (p *PMI) events(e pmi.Effects) (events []Event) {
	if e.Find != "" {
		events = append(events, Find{Rank: p.first, Key: e.Find})
	}
	if !e.Arrived {
		return events
	}
	waiting := p.server.Waiting()
	for at, size := 0, 0; ; at += 2 {
		if at+1 >= len(e.Puts) {
			return append(events, Arrived{Rank: waiting[0], Puts: e.Puts})
		}
		if size += len(e.Puts[at]) + len(e.Puts[at+1]); size > maxPuts {
			events = append(events, Arrived{Rank: waiting[0], Puts: e.Puts[:at+2], More: true})
			e.Puts, at, size = e.Puts[at+2:], -2, 0
		}
	}
}
