package channel

// Stats holds the counters of one end of a channel (E13).
type Stats struct {
	Registered int // bytes of registered buffers

	Sent         uint64 // messages, without the channel's own control messages
	Received     uint64 // messages released
	SentBytes    uint64 // bytes of the bodies sent
	ViaLargeRing uint64 // messages sent through a large ring
	RecvBytes    uint64
	Credits      uint64 // CREDITs sent
	Stalls       uint64 // times that credits ran out

	EnlargesSent     uint64 // ENLARGEs sent
	EnlargesGranted  uint64 // of these, granted
	ResizesRefused   uint64 // refused by the peer, or for lack of memory at this end
	ShrinksSent      uint64 // SHRINKs sent
	ShrinksGranted   uint64 // of these, granted
	RequestsRefused  uint64 // requests of the peer that this end refused
	ZeroTransfers    uint64 // transfers that moved nothing because the channel first had to get larger slots
	HeadsWithoutTail uint64 // polls that found a head without its tail
	CorruptReplies   uint64 // replies with a wrong checksum
	OverdueReplies   uint64 // replies requested again because they were late
	RepliesResent    uint64 // replies resent at the peer's request
}

// Stats returns the current counters.
func (c *Channel) Stats() Stats {
	s := c.stats
	s.Registered = c.memory.registered
	return s
}
