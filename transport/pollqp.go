package transport

// QPPoller is the part of a QP that receives what has arrived for it without polling the other QPs of its
// completion queue, so a caller that waits for one of many peers notices its data sooner. It is available if
// DeviceAttr.PollQP is set.
type QPPoller interface {
	// PollQP makes a pass over this queue pair alone. It reports whether it did so, and whether it received
	// anything. Poll returns the resulting completions; it must still be called from time to time, for the
	// other queue pairs, and at once if polled is false.
	PollQP() (polled, came bool)
}
