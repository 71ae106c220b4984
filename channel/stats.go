package channel

// Stats are the counters of one end of a channel (E13).
type Stats struct {
	Registered int // bytes of registered buffers

	Sent      uint64 // messages, without those of the channel itself
	Received  uint64 // messages released
	SentBytes uint64 // bodies
	Beside    uint64 // of the messages sent, those that went through a large ring beside the small one
	RecvBytes uint64
	Credits   uint64 // CREDITs sent
	Stalls    uint64 // times that credits ran out

	Asked           uint64 // ENLARGEs sent
	Acked           uint64 // of these, granted
	Refused         uint64 // refused by the peer, or for want of memory here
	ShrinksAsked    uint64 // SHRINKs sent
	Shrunk          uint64 // of these, granted
	Refusals        uint64 // questions of the peer that were refused here
	ZeroTransfers   uint64 // Transfers that moved nothing because larger slots had to come first
	HeadsNoTail     uint64 // polls that found a head and no tail
	Corrupt         uint64 // answers with a wrong checksum
	AnswersRepeated uint64 // answers given again because the first was corrupt
}

// Stats returns the counters as they stand.
func (c *Channel) Stats() Stats { return c.stats }
