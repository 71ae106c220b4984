package engine

import (
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Stats are the counters of an endpoint, or of all endpoints of a rank, and of their channels.
type Stats struct {
	Connections int    // open channels
	Registered  int    // bytes of the channels' registered buffers
	Collective  int    // bytes of registered buffers of collectives between ranks of this host
	Kept        int    // bytes of unexpected messages
	EagerSent   uint64 // messages copied into a peer's ring
	Announced   uint64 // messages that went by rendezvous, in whole or in part
	Unexpected  uint64 // messages that came before their receive
	Holds       uint64 // times that a peer was paused (see unexpectedMessages)
	HeadsNoTail uint64 // polls that found a message's head and not yet its tail
	Stalls      uint64 // times that credits ran out
	Passes      uint64 // progress passes
	Events      uint64 // events of completion handlers
	Sleeps      uint64 // waits that went to sleep
	// completions and rings with arrivals that passes have found
	Completions uint64
	// how long goroutines have slept in calls, all together
	Asleep time.Duration

	Channels  []ChannelStats
	Endpoints []EndpointStats // in the counters of a rank
}

// EndpointStats holds counters of one endpoint of a rank. Package mpi has a type of the same fields, and
// describes them.
type EndpointStats struct {
	Number, Connections                                      int
	EagerSent, Announced, Unexpected, Passes, Events, Sleeps uint64
	HandlerCore                                              int
	HandlerBulk                                              bool
	Handlers                                                 []HandlerStats
	Completions, HandlerWakes, HandlerPasses                 uint64
	LockWaits, LockHandOvers                                 uint64
	LockWaited                                               time.Duration
}

// HandlerStats holds counters of what an endpoint's completion handler has done on one core, in one class:
// likewise.
type HandlerStats struct {
	Core                               int
	Bulk                               bool
	Events, Wakes, Passes, Completions uint64
}

// ChannelStats are the counters of the channel to one peer (E13). A channel grows in phases: from phase 1 on
// the peer has a large receive ring too.
type ChannelStats struct {
	Peer     int    // world rank
	Endpoint int    // whose channel it is
	Fabric   string // name of the provider
	Phase    int    // phase in which this rank sends, from 0
	channel.Stats
	protocols
	Lanes transport.LaneStats // of its connections; zero if the fabric has none

	// what both copies through mapped memory take for each KiB, and what it takes to write what the peer has
	// read; and the length up to which an awaited send therefore goes through the ring (peerCopies)
	MappedKiB, RewriteKiB time.Duration
	Awaited               int

	// bytes of the peer's RDMA Reads that this rank has answered, and those of them that it copied
	ReadBytes, ReadBytesCopied uint64
}

// protocols counts messages and bytes by protocol.
type protocols struct {
	Eager, EagerBytes           uint64
	Rendezvous, RendezvousBytes uint64
	Granted                     uint64 // announcements whose bytes this rank wrote into granted memory
}

func (s *protocols) eager(n int) {
	s.Eager++
	s.EagerBytes += uint64(n)
}

// Stats returns the current counters of all endpoints.
func (h *Hub) Stats() Stats {
	var all Stats
	for e := range h.each() {
		st := e.Stats()
		all.add(&st)
		all.Endpoints = append(all.Endpoints, e.endpointStats(&st))
	}
	return all
}

// endpointStats returns the counters of the endpoint, some of which are in st.
func (e *Engine) endpointStats(st *Stats) EndpointStats {
	own := EndpointStats{Number: e.number, Connections: st.Connections, EagerSent: st.EagerSent,
		Announced: st.Announced, Unexpected: st.Unexpected, Passes: st.Passes, Events: st.Events,
		Sleeps: st.Sleeps, HandlerCore: -1, Completions: st.Completions,
		LockWaits: e.mu.waits.Load(), LockHandOvers: e.mu.handOvers.Load(),
		LockWaited: time.Duration(e.mu.waited.Load())}
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.completionHandler
	own.HandlerBulk = h.at.Bulk
	for _, s := range h.served {
		own.HandlerWakes += s.Wakes
		own.HandlerPasses += s.Passes
		own.Handlers = append(own.Handlers, HandlerStats{s.Core, s.Bulk, s.events, s.Wakes, s.Passes,
			s.completions})
	}
	if h.active() {
		own.HandlerCore = h.at.Core
	}
	return own
}

// add adds the counters of an endpoint.
func (s *Stats) add(o *Stats) {
	s.Connections += o.Connections
	s.Registered += o.Registered
	s.Collective += o.Collective
	s.Kept += o.Kept
	s.EagerSent += o.EagerSent
	s.Announced += o.Announced
	s.Unexpected += o.Unexpected
	s.Holds += o.Holds
	s.HeadsNoTail += o.HeadsNoTail
	s.Stalls += o.Stalls
	s.Passes += o.Passes
	s.Events += o.Events
	s.Sleeps += o.Sleeps
	s.Completions += o.Completions
	s.Asleep += o.Asleep
	s.Channels = append(s.Channels, o.Channels...)
}

// Stats returns the current counters of the endpoint.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped == nil {
		e.MailboxCalls.freeReleasedLocked()
	}
	st := e.stats
	st.Kept, st.Asleep = e.unexpected.bytes, e.waiting.timeAsleepLocked()
	st.Collective = e.MailboxCalls.buffers.bytes
	for _, p := range e.peers {
		if p == nil {
			continue
		}
		st.EagerSent += p.stats.Eager
		st.Announced += p.stats.Rendezvous
		if p.ch == nil {
			continue
		}
		c := ChannelStats{Peer: p.rank, Endpoint: e.number, Fabric: p.fabric.name, Phase: p.ch.Phase(),
			Stats:     p.ch.Stats(),
			protocols: p.stats, MappedKiB: p.copies.mapped, RewriteKiB: p.copies.rewrite,
			Awaited: p.copies.awaited}
		if qp := p.ch.QP(); qp != nil {
			reads := qp.ReadsAnswered()
			c.Lanes, c.ReadBytes, c.ReadBytesCopied = qp.Lanes(), reads.Bytes, reads.Copied
		}
		st.Channels = append(st.Channels, c)
		st.Registered += c.Registered
		st.HeadsNoTail += c.HeadsWithoutTail
		st.Stalls += c.Stalls
		if p.state == peerOpen {
			st.Connections++
		}
	}
	return st
}
