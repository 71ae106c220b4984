package engine

import "fmt"

// PeerError is the failure of a peer: the error of every operation that needs the peer.
type PeerError struct {
	Rank int   // in the world
	Err  error // why the peer counts as failed
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("%v: world rank %d: %v", ErrProcFailed, e.Rank, e.Err)
}

func (e *PeerError) Unwrap() []error { return []error{ErrProcFailed, e.Err} }

// TruncateError is the failure of a receive whose message is longer than its buffer.
type TruncateError struct {
	Bytes, Room int
	Source      int // world rank
	Tag         int
}

func (e *TruncateError) Error() string {
	return fmt.Sprintf("%v: %d bytes in a buffer of %d", ErrTruncate, e.Bytes, e.Room)
}

func (e *TruncateError) Unwrap() error { return ErrTruncate }

// PartialError is the failure of a receive whose message is not a whole number of elements.
type PartialError struct {
	Bytes, Elem int
	Source      int // world rank
	Tag         int
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("%v: %d bytes were sent, not a whole number of elements of %d bytes", ErrType, e.Bytes,
		e.Elem)
}

func (e *PartialError) Unwrap() error { return ErrType }

// RequestError adds the peer and the tag of a request to its failure.
type RequestError struct {
	Peer int // world rank, or AnySource
	Tag  int
	Err  error
}

func (e *RequestError) Error() string { return e.Err.Error() }

func (e *RequestError) Unwrap() error { return e.Err }

// annotated wraps err, unless nil, in a RequestError for r.
func (r *request) annotated(err error) error {
	if err == nil {
		return nil
	}
	return r.annotate(err)
}

func (r *request) annotate(err error) error {
	at := &RequestError{Peer: r.rank, Tag: int(r.msg.Tag), Err: err}
	if r.kind == kindRecv {
		at.Peer, at.Tag = int(r.posted.Source), int(r.posted.Tag)
		if r.status.Bytes > 0 || r.received > 0 {
			at.Peer, at.Tag = r.status.Source, r.status.Tag
		}
	}
	return at
}
