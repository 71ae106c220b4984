package engine

import (
	"time"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Stats are the counters of an endpoint, or of all of a rank, and what the channels have.
type Stats struct {
	Connections int    // open channels
	Registered  int    // bytes of their registered buffers
	Collective  int    // bytes of registered buffers of collectives between ranks of this host
	Kept        int    // bytes of unexpected messages
	EagerSent   uint64 // messages copied into a peer's ring
	Announced   uint64 // messages of which all, or an element, was announced, to be read by their receiver
	Unexpected  uint64 // messages that came before their receive
	Holds       uint64 // times that a peer was told to keep its payload, for want of memory
	HeadsNoTail uint64 // polls that found a message's head and not yet its tail
	Stalls      uint64 // times that credits ran out
	Passes      uint64 // rounds of polling
	Events      uint64 // that completion handlers were told of
	Sleeps      uint64 // waits that went to sleep
	// completions, and rings that something has come to, that passes have found
	Completions uint64
	// how long goroutines have slept in calls, all together
	Asleep time.Duration

	Channels  []ChannelStats
	Endpoints []EndpointStats // of a rank
}

// EndpointStats are counters of one endpoint of a rank.
type EndpointStats struct {
	Number      int
	Connections int // open channels
	EagerSent   uint64
	Announced   uint64
	Unexpected  uint64
	Passes      uint64
	Events      uint64 // that its completion handler was told of
	Sleeps      uint64
	HandlerCore int  // of its completion handler; -1 for none
	HandlerBulk bool // the handler makes way for others on its core

	// completions, and rings that something has come to, that passes have found
	Completions   uint64
	HandlerWakes  uint64        // times that something has woken the endpoint's completion handler
	HandlerPasses uint64        // of the handler over the endpoint's queue pairs
	LockWaits     uint64        // times that a goroutine has waited for the endpoint's lock
	LockHandOvers uint64        // of these, those in which its holder passed the lock on, after a long wait
	LockWaited    time.Duration // the time that goroutines have waited for it, in total
}

// ChannelStats are the counters of the channel to one peer (E13).
type ChannelStats struct {
	Peer     int    // world rank
	Endpoint int    // whose channel it is
	Fabric   string // that carries the channel
	Phase    int    // in which this rank sends, from 0
	channel.Stats
	protocols
	Lanes transport.LaneStats // of the connections below it; zero where the fabric has none

	// bytes of RDMA Reads of the peer that this rank's end has answered, and those of them that it copied
	ReadBytes, ReadBytesCopied uint64
}

// protocols counts messages, and bytes of them, by the protocol that carried them.
type protocols struct {
	Eager, EagerBytes           uint64
	Rendezvous, RendezvousBytes uint64
	Granted                     uint64 // announcements whose bytes this rank wrote, as the receiver granted
}

func (s *protocols) eager(n int) {
	s.Eager++
	s.EagerBytes += uint64(n)
}

// Stats returns the counters of all endpoints, as they stand.
func (h *Hub) Stats() Stats {
	var all Stats
	for e := range h.each() {
		st := e.Stats()
		all.add(&st)
		all.Endpoints = append(all.Endpoints, e.endpointStats(&st))
	}
	return all
}

// endpointStats are counters of the endpoint, of which st has some.
func (e *Engine) endpointStats(st *Stats) EndpointStats {
	own := EndpointStats{Number: e.number, Connections: st.Connections, EagerSent: st.EagerSent,
		Announced: st.Announced, Unexpected: st.Unexpected, Passes: st.Passes, Events: st.Events,
		Sleeps: st.Sleeps, HandlerCore: -1, Completions: st.Completions,
		LockWaits: e.mu.waits.Load(), LockHandOvers: e.mu.handOvers.Load(),
		LockWaited: time.Duration(e.mu.waited.Load())}
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.completionHandler
	own.HandlerBulk, own.HandlerWakes, own.HandlerPasses = h.at.Bulk, h.counts.Wakes, h.counts.Passes
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

// Stats returns the counters of the endpoint as they stand.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped == nil {
		e.Collectives.freeReleasedLocked()
	}
	st := e.stats
	st.Kept, st.Asleep = e.unexpected.bytes, e.waiting.timeAsleepLocked()
	st.Collective = e.Collectives.buffers.bytes
	for _, p := range e.peers {
		if p == nil || p.ch == nil {
			continue
		}
		c := ChannelStats{Peer: p.rank, Endpoint: e.number, Fabric: p.fabric.name, Phase: p.ch.Phase(),
			Stats:     p.ch.Stats(),
			protocols: p.stats}
		if qp := p.ch.QP(); qp != nil {
			reads := qp.ReadsAnswered()
			c.Lanes, c.ReadBytes, c.ReadBytesCopied = qp.Lanes(), reads.Bytes, reads.Copied
		}
		st.Channels = append(st.Channels, c)
		st.Registered += c.Registered
		st.HeadsNoTail += c.HeadsWithoutTail
		st.Stalls += c.Stalls
		st.EagerSent += c.Eager
		st.Announced += c.Rendezvous
		if p.state == peerOpen {
			st.Connections++
		}
	}
	return st
}
