package transport

// QPPoller is the part of a QP that takes in what has come for it without a look at the others of its
// completion queue: who waits for one peer of many learns sooner what that one has sent. It is there where
// DeviceAttr.PollQP says so.
type QPPoller interface {
	// PollQP makes a pass over this queue pair alone. It tells whether it has, and whether anything came.
	// What that completes, Poll gives, which is to be called now and then all the same, for the others, and
	// at once where PollQP did nothing.
	PollQP() (polled, came bool)
}
