package channel

// Stats are the counters of one end of a channel (E13).
type Stats struct {
	Registered int // bytes of registered buffers

	Sent         uint64 // messages, without those of the channel itself
	Received     uint64 // messages released
	SentBytes    uint64 // bodies
	ViaLargeRing uint64 // of the messages sent, those that went through a large ring
	RecvBytes    uint64
	Credits      uint64 // CREDITs sent
	Stalls       uint64 // times that credits ran out

	EnlargesSent     uint64 // ENLARGEs sent
	EnlargesGranted  uint64 // of these, granted
	ResizesRefused   uint64 // refused by the peer, or for want of memory here
	ShrinksSent      uint64 // SHRINKs sent
	ShrinksGranted   uint64 // of these, granted
	RequestsRefused  uint64 // questions of the peer that were refused here
	ZeroTransfers    uint64 // Transfers that moved nothing because larger slots had to come first
	HeadsWithoutTail uint64 // polls that found a head and no tail
	CorruptReplies   uint64 // answers with a wrong checksum
	RepliesResent    uint64 // answers given again because the first was corrupt
}

// Stats returns the counters as they stand.
func (c *Channel) Stats() Stats { return c.stats }
