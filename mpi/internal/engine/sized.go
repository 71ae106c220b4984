package engine

// Sized is the buffer of a receive of any length. It must not be used until the request is complete.
type Sized struct {
	Head  []byte // where the message's first bytes go
	Limit int    // for the bytes after those: a longer message gives a TruncateError
	Cut   bool   // receive the first Limit bytes of a longer message; otherwise none
	Bytes []byte // the bytes after those; allocated when the message is matched

	vec [2][]byte
}

// allocate makes room for a message.
func (s *Sized) allocate(bytes int) [][]byte {
	n := max(0, bytes-len(s.Head))
	if n > s.Limit {
		if n = 0; s.Cut {
			n = s.Limit
		}
	}
	s.Bytes = make([]byte, n)
	s.vec = [2][]byte{s.Head, s.Bytes}
	if len(s.Head) == 0 {
		return s.vec[1:]
	}
	return s.vec[:]
}

// IrecvSized begins a receive of a message of any length, up to a limit.
func (v *Recvs) IrecvSized(context uint32, s *Sized, src, tag, elem int) (Request, error) {
	e := v.e
	start := e.hook.begin(CallIrecv, 0)
	defer e.hook.end(CallIrecv, start, src, tag, 0)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return Request{}, e.stopped
	}
	r := e.Requests.get()
	r.sized, r.observed = s, true
	v.startLocked(r, context, src, tag, elem)
	return r.handle(), nil
}
