package snapshot

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
)

// MaxSampleWaits bounds the waits that a sample lists.
const MaxSampleWaits = 4

// A Sample is a rank's report for watchers: its state, and its counters since Init.
type Sample struct {
	State Rank // without messages, channels and members of communicators

	Up              time.Duration // since Init
	Asleep          time.Duration // in calls, of all goroutines together
	Sent, SentBytes uint64        // messages, and their bytes
	SentBy          []uint64      `json:",omitempty"` // Sent by endpoint; empty while only one is in use
	Memory          uint64        // bytes that the Go runtime has from the system
	Registered      uint64        // bytes of the channels' buffers, not part of Memory
	Phases          []int         `json:",omitempty"` // channels in each phase, from the first one
	Lanes           int           // connections that carry data now
	LanesLost       uint64        // since Init
}

// Encode returns the sample's encoding, which DecodeSample reads.
func (s *Sample) Encode() ([]byte, error) {
	s.State.Version = Version
	return json.Marshal(s)
}

// DecodeSample decodes and checks a sample: the launcher does not trust a rank.
func DecodeSample(b []byte) (*Sample, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("a sample of %d bytes; at most %d are read", len(b), MaxSize)
	}
	s := &Sample{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("a sample that cannot be read: %w", err)
	}
	if n := len(s.SentBy); n > contextid.MaxEndpoints {
		return nil, fmt.Errorf("a sample of %d endpoints; a rank has at most %d", n, contextid.MaxEndpoints)
	}
	return s, s.State.check()
}
