package transport

import "time"

// CQ is a completion queue. Polling it moves the bytes of the QPs attached to it. If the CQ has been given to
// a completion handler, the handler polls it; the consumer may poll it too, while it holds the handler's
// Lock.
type CQ interface {
	// Poll makes one pass: it sends what can be sent and places what has arrived for the QPs attached to this
	// CQ, then fills wc with completions, oldest first, and returns how many. It never blocks, and makes no
	// allocation. Completions beyond len(wc) stay for the next call. A pass with len(wc) == 0 is legal.
	Poll(wc []WC) int

	// Placed fills qps with the queue pairs into whose regions the peer has placed bytes of a Write, or
	// carried out an Atomic, since the last call. Neither produces a completion here. Each queue pair is
	// listed once. Placed returns how many there are; those that do not fit stay for the next call. A
	// consumer that polls flags in memory therefore need not check every peer.
	Placed(qps []QPN) int

	// RequestNotify asks for one event (N5). The first event that n selects ends the request. Completions
	// already in the queue, and queue pairs that Placed has yet to report, raise no event, so the caller must
	// poll once more after RequestNotify. Several requests before the event combine. A work request with
	// FlagNotify, or RecvWR.Notify, raises an event when it completes, whether or not one was requested; so
	// does an overrun. Events that are raised before the handler delivers them are delivered as one, and an
	// event may find the queue empty.
	//
	// The event of a queue without a handler stays with the queue until it is given one, and ends a Wait.
	RequestNotify(n Notify) error

	// Arm prepares a Wait: the driver must call it first, and whatever arrives from then on ends the Wait.
	// Without it, Wait may return at once. To request an event of a handler, see RequestNotify.
	Arm()

	// Wait blocks until a Poll may find something to do, Wake is called, or d has passed (d < 0: forever). It
	// may return early. It lets other goroutines run and uses no processor time. While one goroutine is in
	// Wait, others may use the CQ and its QPs as usual. Wait returns an error while a handler has the CQ.
	// Closing the device ends it; from then on it returns ErrDeviceGone.
	Wait(d time.Duration) error

	// Descriptor returns an epoll descriptor that is readable, between EnterWait and LeaveWait, when a Wait
	// would end. With it, one goroutine can wait for several CQs. It is -1 if DeviceAttr.PollableCQs is
	// false.
	Descriptor() int

	// EnterWait begins a wait on Descriptor, under the same conditions as Wait. It returns false if a Poll
	// may already find something to do; LeaveWait must not be called then.
	EnterWait() (bool, error)

	// LeaveWait ends what EnterWait began, and consumes the Wake that may have ended it.
	LeaveWait()

	// Wake ends the current Wait, or else the next one. It may be called from any goroutine.
	Wake()

	// Tick must be called by the driver once per DeviceAttr.TickPeriod, even while the rank does something
	// else. It sends a sign of life to the peers of the QPs that receive through this CQ, and ends QPs whose
	// peers have been silent for the device's timeout, with ErrPeerLost. A rank that does not call it counts
	// as lost at peers that do. A call less than a period after the last one does nothing. A call that is
	// late by more than a period is not counted against any peer: a process that was not running itself
	// cannot tell whether its peers were. Tick never blocks. It does not deliver completions; Poll does.
	Tick(now time.Time)

	// Close releases the CQ, and ends a Wait that is under way. It returns an error if QPs still use the CQ,
	// or a handler has it.
	Close() error
}
