package mpi

import (
	"time"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/transport"
)

// Stats holds a rank's counters since Init, for all communicators together. A message is eager, copied
// through the ring of slots that its receiver has for the sender, or goes by rendezvous: it is announced, and
// its bytes move directly between the buffers.
type Stats struct {
	Connections int    // open channels to peers
	Registered  int    // bytes of registered buffers of these channels
	Collective  int    // bytes of registered buffers that collectives between ranks of this host use besides
	Kept        int    // bytes of unexpected messages, which have arrived before their receive
	EagerSent   uint64 // messages copied into a peer's receive ring
	Announced   uint64 // messages announced in whole or in part, and moved by rendezvous
	Unexpected  uint64 // messages that arrived before their receive
	// times that a peer was told to announce payload instead of sending it, for lack of memory
	Holds       uint64
	HeadsNoTail uint64 // polls that found only part of a message
	Stalls      uint64 // times that a channel ran out of credits
	Passes      uint64 // progress passes
	Events      uint64 // events of completion handlers
	Sleeps      uint64 // waits in which the goroutine went to sleep
	// completions, and rings that something has come to, that passes have found
	Completions uint64
	// total time that goroutines have slept in calls
	Asleep time.Duration

	Channels  []ChannelStats  // one for each peer that an endpoint of this rank was connected to
	Endpoints []EndpointStats // one for each endpoint that is in use
}

// EndpointStats holds counters of one endpoint of a rank (see Comm.Endpoint).
type EndpointStats struct {
	Number      int    // of the endpoint
	Connections int    // open channels to peers
	EagerSent   uint64 // messages copied into a peer's receive ring
	Announced   uint64 // messages announced in whole or in part, and moved by rendezvous
	Unexpected  uint64 // messages that arrived before their receive
	Passes      uint64 // progress passes
	Events      uint64 // events of its completion handler
	Sleeps      uint64 // waits in which the goroutine went to sleep
	HandlerCore int    // core of its completion handler; -1 if it has none
	HandlerBulk bool   // the handler yields to others on its core

	// one for each core on which its completion handler has run, and each class that it has had there, by the
	// order in which that began
	Handlers []HandlerStats

	// completions, and rings that something has come to, that passes have found
	Completions   uint64
	HandlerWakes  uint64        // times that the endpoint's completion handler was woken
	HandlerPasses uint64        // passes of the handler over the endpoint's queue pairs
	LockWaits     uint64        // times that a goroutine has waited for the endpoint's lock
	LockHandOvers uint64        // number of these that ended with a hand-over, after a long wait
	LockWaited    time.Duration // the time that goroutines have waited for it, in total
}

// HandlerStats holds counters of what an endpoint's completion handler has done on one core, in one class.
type HandlerStats struct {
	Core        int
	Bulk        bool
	Events      uint64 // events of the handler
	Wakes       uint64 // times that it was woken
	Passes      uint64 // over the endpoint's queue pairs
	Completions uint64 // found after an event, and rings with arrivals
}

// ChannelStats holds the counters of the channel to one peer. Each end has a receive ring for the other,
// which is enlarged and shrunk on demand, in phases. A channel's control messages are CREDIT, by which a
// receiver tells the sender what it has consumed (flow control), and ENLARGE and SHRINK, by which a sender
// requests a larger or smaller ring; the receiver answers these requests with a reply
// (docs/internals/spec/channel.md).
type ChannelStats struct {
	Peer     int    // world rank
	Endpoint int    // of this rank, whose channel it is
	Fabric   string // the fabric, the provider of the verbs, that carries the channel: shm or tcp
	Phase    int    // index, from 0, of the buffer size in which this rank sends

	Registered       int    // bytes of registered buffers
	Sent             uint64 // messages sent, without the channel's own control messages
	Received         uint64 // messages received
	SentBytes        uint64 // bytes of the messages sent
	RecvBytes        uint64 // bytes of the messages received
	ViaLargeRing     uint64 // messages sent through a large ring beside the small one
	Credits          uint64 // CREDIT messages sent
	Stalls           uint64 // times that credits ran out
	EnlargesSent     uint64 // ENLARGE messages sent
	EnlargesGranted  uint64 // of these, granted
	ResizesRefused   uint64 // requests refused by the peer, or for lack of memory at this rank
	ShrinksSent      uint64 // SHRINK messages sent
	ShrinksGranted   uint64 // of these, granted
	RequestsRefused  uint64 // resize requests of the peer that this rank refused
	ZeroTransfers    uint64 // transfers that moved nothing because the channel first had to get larger slots
	HeadsWithoutTail uint64 // polls that found only part of a message
	CorruptReplies   uint64 // replies to ENLARGE and SHRINK with a wrong checksum
	OverdueReplies   uint64 // overdue replies, for which this rank asked again
	RepliesResent    uint64 // replies resent because the peer asked for them again

	Eager, EagerBytes           uint64 // messages and bytes that were copied through the channel's rings
	Rendezvous, RendezvousBytes uint64 // messages and bytes that moved directly between user buffers
	Granted                     uint64 // announcements whose bytes this rank wrote into the receiver's buffer

	// What both copies of a message through shared memory take for each KiB, as this rank has sampled or else
	// assumes it, and the length up to which a blocking send whose receiver probably waits therefore goes
	// through the rings; -1 if that is decided otherwise.
	MappedKiB time.Duration
	Awaited   int

	// What it takes for each KiB to write memory that the peer has read, as this rank has measured it in the
	// first collectives of long messages, or else assumes it.
	RewriteKiB time.Duration

	// bytes of the peer's RDMA Reads that this rank has answered, and those of them that it copied before
	// sending
	ReadBytes, ReadBytesCopied uint64

	Lanes LaneStats // counters of the channel's connections; zero if the fabric has no lanes
}

// LaneStats holds the counters of the lanes of a channel: the TCP connections that carry it.
type LaneStats = transport.LaneStats

// Stats returns the counters of this rank. All are zero after Finalize, and on a
// communicator that was freed.
func (c *Comm) Stats() Stats {
	if c.checkAttributes() != nil { // they do not depend on the communicator, which may be revoked
		return Stats{}
	}
	return statsOf(c.job.hub.Stats())
}

func statsOf(s engine.Stats) Stats {
	st := Stats{
		Connections: s.Connections, Registered: s.Registered, Collective: s.Collective,
		Kept: s.Kept, EagerSent: s.EagerSent, Announced: s.Announced,
		Unexpected: s.Unexpected, Holds: s.Holds, HeadsNoTail: s.HeadsNoTail, Stalls: s.Stalls,
		Passes: s.Passes, Events: s.Events, Sleeps: s.Sleeps, Completions: s.Completions,
		Asleep: s.Asleep,
	}
	for i := range s.Endpoints {
		st.Endpoints = append(st.Endpoints, endpointStatsOf(&s.Endpoints[i]))
	}
	for i := range s.Channels {
		c := &s.Channels[i]
		st.Channels = append(st.Channels, ChannelStats{
			Peer: c.Peer, Endpoint: c.Endpoint, Fabric: c.Fabric, Phase: c.Phase, Registered: c.Registered,
			Sent:      c.Sent,
			Received:  c.Received,
			SentBytes: c.SentBytes, RecvBytes: c.RecvBytes, ViaLargeRing: c.ViaLargeRing,
			Credits: c.Credits, Stalls: c.Stalls,
			EnlargesSent: c.EnlargesSent, EnlargesGranted: c.EnlargesGranted,
			ResizesRefused: c.ResizesRefused,
			ShrinksSent:    c.ShrinksSent, ShrinksGranted: c.ShrinksGranted,
			RequestsRefused: c.RequestsRefused,
			ZeroTransfers:   c.ZeroTransfers, HeadsWithoutTail: c.HeadsWithoutTail,
			CorruptReplies: c.CorruptReplies, OverdueReplies: c.OverdueReplies,
			RepliesResent: c.RepliesResent, Eager: c.Eager, EagerBytes: c.EagerBytes,
			Rendezvous:      c.Rendezvous,
			RendezvousBytes: c.RendezvousBytes, Granted: c.Granted,
			MappedKiB: c.MappedKiB, Awaited: c.Awaited, RewriteKiB: c.RewriteKiB,
			ReadBytes: c.ReadBytes, ReadBytesCopied: c.ReadBytesCopied,
			Lanes: c.Lanes,
		})
	}
	return st
}

func endpointStatsOf(e *engine.EndpointStats) EndpointStats {
	st := EndpointStats{
		Number: e.Number, Connections: e.Connections, EagerSent: e.EagerSent, Announced: e.Announced,
		Unexpected: e.Unexpected, Passes: e.Passes, Events: e.Events, Sleeps: e.Sleeps,
		HandlerCore: e.HandlerCore, HandlerBulk: e.HandlerBulk, Completions: e.Completions,
		HandlerWakes: e.HandlerWakes, HandlerPasses: e.HandlerPasses,
		LockWaits: e.LockWaits, LockHandOvers: e.LockHandOvers, LockWaited: e.LockWaited,
	}
	for _, h := range e.Handlers {
		st.Handlers = append(st.Handlers, HandlerStats(h))
	}
	return st
}
