package engine

import "github.com/weft-mpi/weft/internal/sys"

// complete completes an operation: the program may use its buffer again.
func (t *Requests) complete(r *request, err error) {
	if err == nil && !r.observed { // the common case
		sys.StoreRelease32(&r.done, r.gen)
		return
	}
	t.finish(r, err)
}

// finish is complete for an operation that has failed, or with relations to others.
func (t *Requests) finish(r *request, err error) {
	if r.err = r.annotated(err); err != nil {
		t.noteFailureLocked(r)
	}
	if !r.observed {
		sys.StoreRelease32(&r.done, r.gen)
		return
	}
	if r.cancel == withdrawGranted || r.cause != nil {
		t.e.Cancels.setOutcomeLocked(r)
	}
	if r.fetchesFor != nil {
		t.e.Probes.fetchedForMessage(r)
	}
	r.peer = nil
	w, shared := r.sleeper, r.manySleepers
	r.sleeper = nil
	sys.StoreRelease32(&r.done, r.gen)
	if r.detached {
		t.collect(r.handle(), r)
	}
	if r.collective != nil {
		t.e.Collectives.messageDoneLocked(r)
	}
	switch {
	case shared:
		t.e.hub.sleepers.wakeAll()
	case w != nil:
		t.e.hub.sleepers.wake(w)
	}
}

// collect returns the result of a completed request, which h names, and puts the request back into the pool.
func (t *Requests) collect(h Request, r *request) (Status, error) {
	st, err := r.status, r.err
	t.release(h, r)
	return st, err
}

// detach lets a request go back to the pool as soon as it completes: nobody will collect it.
func (t *Requests) detach(r *request) {
	if r.completed() {
		t.collect(r.handle(), r)
	} else {
		r.detached, r.observed = true, true
	}
}

// collectNull returns the result of a handle that names no request.
func (t *Requests) collectNull(h Request, into *Status) (err error) {
	st := nullStatus
	if h != Null {
		st, err = noStatus, errUsed
	}
	if into != nil {
		*into = st
	}
	return err
}

func (t *Requests) allDone(n int, at func(i int) Request) bool {
	for i := range n {
		if r := t.find(at(i)); r != nil && !r.completed() {
			return false
		}
	}
	return true
}

// collectSome passes up to limit of n requests that are complete to take. It begins with the one at index
// first, or with an earlier one if no later one is complete.
func (t *Requests) collectSome(n int, at func(i int) Request, first, limit int,
	take func(int, *Status, error)) (taken int, active bool) {
	taken, active = t.collectFrom(first, n, at, limit, take)
	if first == 0 || taken > 0 {
		return taken, active
	}
	taken, before := t.collectFrom(0, first, at, limit, take)
	return taken, active || before
}

// collectFrom is collectSome for the requests from index first on.
func (t *Requests) collectFrom(first, n int, at func(i int) Request, limit int,
	take func(int, *Status, error)) (taken int, active bool) {
	for i := first; i < n && taken < limit; i++ {
		h := at(i)
		if h == (Request{}) {
			continue
		}
		active = true
		r := t.find(h)
		switch {
		case h == Null:
			take(i, &nullStatus, nil)
		case r == nil:
			take(i, &noStatus, errUsed)
		case r.completed():
			take(i, &r.status, r.err)
			t.release(h, r)
		default:
			continue
		}
		taken++
	}
	return taken, active
}
