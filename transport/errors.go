package transport

import "errors"

// Errors that callers distinguish. Providers wrap them with the operation, the place and the peer.
var (
	ErrQueueFull = errors.New("queue is full")                      // poll, then post again
	ErrClosed    = errors.New("connection closed in order by peer") // QP.Err after the peer's Close
	// work posted to a QP that is closing, closed or in error
	ErrState   = errors.New("queue pair is not ready")
	ErrInvalid = errors.New("invalid argument") // refused at the call
	ErrAccess  = errors.New("access refused")   // key, domain, right or bounds
	// connection reset or cut, or peer silent for too long
	ErrPeerLost = errors.New("peer lost")
	ErrProtocol = errors.New("protocol violation") // the peer broke a rule
	// refused by one of the two ends: Prepare returned an error, or there is no such rank in this job
	ErrRefused = errors.New("connection refused")
	ErrAuth    = errors.New("peer does not know the job's secret") // its proof is wrong
	ErrVersion = errors.New("peer speaks another version")         // of a provider's protocol
	// more completions than its depth: the CQ and its QPs are in error
	ErrOverrun = errors.New("completion queue overrun")
	// garbage in place of the handshake message
	ErrNotWeft    = errors.New("peer does not speak weft's protocol")
	ErrDeviceGone = errors.New("device is closed") // by its own Close
)
