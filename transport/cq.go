package transport

import "time"

// CQ is a completion queue. Polling it is what moves the bytes of the QPs attached to it. One that a
// completion handler has been given is polled by that; its consumer may do so too, with the handler's Lock
// held.
type CQ interface {
	// Poll makes one pass: it sends what can be sent and places what has arrived for the QPs attached to this
	// CQ, then fills wc with completions, oldest first, and returns how many. It never blocks, and makes no
	// allocation. Completions beyond len(wc) stay for the next call. A pass with len(wc) == 0 is legal.
	Poll(wc []WC) int

	// Placed fills qps with queue pairs into whose regions the peer has placed bytes of a Write, or carried
	// out an Atomic (with no completion to show for it), since the last call, each once, and returns how
	// many; what does not fit stays for the next call. So whoever polls flags in memory need not look at
	// every peer.
	Placed(qps []QPN) int

	// RequestNotify asks for one event (N5): the first match from now on raises it, and takes the request
	// back. Completions that are in the queue already, and queue pairs that Placed has yet to report, raise
	// none: whoever asks polls once more afterwards, and then misses nothing. Several requests before the
	// event add up. A request with FlagNotify, or RecvWR.Notify, raises an event when it completes, whether
	// or not one was asked for; so does an overrun. Events that are raised before the handler comes to
	// deliver them are delivered as one, and one may find the queue empty.
	//
	// The event of a queue that has no handler stays with it until it is given one, and ends a Wait.
	RequestNotify(n Notify) error

	// Arm is to be called before Wait, by the driver: what comes from then on ends the Wait. Without it Wait
	// may return at once.
	Arm()

	// Wait blocks until a Poll may find something to do, Wake is called, or d has passed (d < 0: for ever).
	// It may return early. It lets other goroutines run and uses no processor time. While one goroutine is in
	// Wait, others may use the CQ and its QPs as if it were not there. It is an error while a handler has the
	// CQ.
	Wait(d time.Duration) error

	// Descriptor is an epoll descriptor that is readable, between EnterWait and LeaveWait, when a Wait would
	// end. One goroutine can so wait for several CQs. -1 where DeviceAttr.PollableCQs is false.
	Descriptor() int

	// EnterWait begins a wait on Descriptor, under the conditions of Wait. It returns false, and LeaveWait is
	// not called, if a Poll may find something to do already.
	EnterWait() (bool, error)

	// LeaveWait ends what EnterWait began, and consumes the Wake that may have ended it.
	LeaveWait()

	// Wake ends a Wait, the present or else the next. It may be called from any goroutine.
	Wake()

	// Tick is to be called by the driver once a DeviceAttr.TickPeriod, also while the rank does something
	// else: it tells the peers of the QPs that receive through this CQ that this end lives, and ends QPs
	// whose peers have been silent for the device's timeout, with ErrPeerLost. Who does not call it is lost
	// to peers that do. A call less than a period after the last one does nothing. One that is late by more
	// than a period is not counted against anybody: who was not running himself cannot tell whether others
	// were. It never blocks. Completions are for Poll.
	Tick(now time.Time)

	// Close releases the CQ; an error if QPs still use it, or a handler has it.
	Close() error
}
