package remote

import "sync/atomic"

// Traffic counts messages.
type Traffic struct{ Messages, Bytes int64 }

// Add adds other traffic.
func (t *Traffic) Add(other Traffic) {
	t.Messages += other.Messages
	t.Bytes += other.Bytes
}

// wireUp counts what an agent and the launcher say to each other so that ranks find one another.
type wireUp struct{ from, to counter }

type counter struct{ messages, bytes atomic.Int64 }

// count counts a frame with its header, if it is of the wire-up.
func (c *counter) count(k kind, length int) {
	switch k {
	case kindArrived, kindFind, kindWaits, kindRelease, kindFound, kindTellWaits:
		c.messages.Add(1)
		c.bytes.Add(int64(length))
	}
}

func (c *counter) read() Traffic { return Traffic{c.messages.Load(), c.bytes.Load()} }

// WireUp is the traffic between the agent and the launcher for the wire-up of the ranks: PMI barriers, keys
// and values.
func (a *Agent) WireUp() (from, to Traffic) { return a.wireUp.from.read(), a.wireUp.to.read() }
