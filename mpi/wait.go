package mpi

import (
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// The following calls are for several requests (MPI 4.1, 3.7.5). They replace the requests that they complete
// by the zero Request, as MPI does with MPI_REQUEST_NULL, so the slice can be passed again. Zero requests in
// it are inactive and are skipped. A request that was used up before counts as complete, with ErrRequest.

// Waitall waits for every request, even if some fail, and returns the first failure by index. Every request
// is complete and zero afterwards.
func Waitall(rs []Request) error { return waitall("Waitall", rs, nil) }

// WaitallStatus is Waitall, and sets st[i] to the status of each rs[i]. The status of an inactive request is
// empty: source AnySource, tag AnyTag, count 0. Status.Err reports whether the request failed. st must be at
// least as long as rs.
func WaitallStatus(rs []Request, st []Status) error {
	if err := enough("WaitallStatus", rs, st); err != nil {
		return err
	}
	empty(st[:len(rs)])
	return waitall("WaitallStatus", rs, st)
}

// empty sets statuses to those of inactive requests.
func empty(st []Status) {
	for i := range st {
		st[i] = emptyStatus
	}
}

func waitall(op string, rs []Request, st []Status) error {
	e := engineOf(rs)
	if e == nil {
		return nil
	}
	o := outcomes{op: op, st: st}
	var handles [64]engine.Request // of the next requests
	var statuses [8]engine.Status
	chunk, into := len(handles), []engine.Status(nil)
	if st != nil || checkingMode(rs) {
		chunk, into = len(statuses), statuses[:]
	}
	several := e.Hub().Several()
	for i := 0; i < len(rs); {
		next := rs[i:min(i+chunk, len(rs))]
		if several {
			e, next = atOneEndpoint(e, next)
		}
		for k := range next {
			handles[k] = next[k].h
		}
		n, err := e.Requests.Collect(handles[:len(next)], into[:min(len(into), len(next))])
		for k := range n {
			if next[k].h != (engine.Request{}) {
				o.add(i+k, next[k], &statuses[k%len(statuses)], failureOf(err, k == n-1))
			}
			next[k] = Request{}
		}
		if i += n; n < len(next) && err == nil {
			s, err := e.Requests.Wait(rs[i].h)
			o.add(i, rs[i], &s, err)
			rs[i] = Request{}
			i++
		}
	}
	return o.first
}

// failureOf returns the error of one of several requests.
func failureOf(err error, last bool) error {
	if last {
		return err
	}
	return nil
}

// Waitany waits until one of the requests is complete, and returns its index, its status and its error. If
// none is active, it returns the index -1 at once. If several are complete, it returns the lowest index.
func Waitany(rs []Request) (int, Status, error) {
	i, st, _, err := anyOf("Waitany", rs, true)
	return i, st, err
}

// Testany is the non-blocking Waitany: false means that some requests are active and none is complete. If
// none is active, it returns true with the index -1.
func Testany(rs []Request) (int, Status, bool, error) { return anyOf("Testany", rs, false) }

func anyOf(op string, rs []Request, wait bool) (at int, st Status, ok bool, err error) {
	at, st = -1, emptyStatus
	e := engineOf(rs)
	if e == nil {
		return at, emptyStatus, true, nil
	}
	handle := func(i int) engine.Request { return rs[i].h }
	take := func(i int, s *engine.Status, failure error) {
		at = i
		st, err = rs[i].taken(op, *s, failure)
		rs[i] = Request{}
	}
	if mixed(e, rs) {
		_, active := someAnywhere(e.Hub(), rs, 1, take, wait)
		return at, st, wait || at >= 0 || !active, err
	}
	if wait {
		e.Requests.WaitSome(len(rs), handle, 1, take)
		return at, st, true, err
	}
	_, active := e.Requests.TestSome(len(rs), handle, 1, take)
	return at, st, at >= 0 || !active, err
}

// Waitsome waits until at least one of the requests is complete, and returns the indices of all that are, in
// ascending order, in the memory of done, which it enlarges as needed. It returns no indices if no request is
// active. The error is the first failure by index; the other indices returned are complete as well.
func Waitsome(rs []Request, done []int) ([]int, error) {
	return someOf("Waitsome", rs, done, nil, true)
}

// WaitsomeStatus is Waitsome, and sets st[i] to the status of rs[i] for each index i that it returns.
// Status.Err reports whether that request failed. st must be at least as long as rs.
func WaitsomeStatus(rs []Request, done []int, st []Status) ([]int, error) {
	if err := enough("WaitsomeStatus", rs, st); err != nil {
		return done[:0], err
	}
	return someOf("WaitsomeStatus", rs, done, st, true)
}

// Testsome is the non-blocking Waitsome: it returns no index if none is complete.
func Testsome(rs []Request, done []int) ([]int, error) {
	return someOf("Testsome", rs, done, nil, false)
}

// TestsomeStatus is the non-blocking WaitsomeStatus.
func TestsomeStatus(rs []Request, done []int, st []Status) ([]int, error) {
	if err := enough("TestsomeStatus", rs, st); err != nil {
		return done[:0], err
	}
	return someOf("TestsomeStatus", rs, done, st, false)
}

func someOf(op string, rs []Request, done []int, st []Status, wait bool) ([]int, error) {
	done = slices.Grow(done[:0], len(rs))
	e := engineOf(rs)
	if e == nil {
		return done, nil
	}
	o := outcomes{op: op, st: st}
	handle := func(i int) engine.Request { return rs[i].h }
	take := func(i int, s *engine.Status, failure error) {
		o.add(i, rs[i], s, failure)
		done = append(done, i)
		rs[i] = Request{}
	}
	if mixed(e, rs) {
		someAnywhere(e.Hub(), rs, len(rs), take, wait)
	} else if wait {
		e.Requests.WaitSome(len(rs), handle, len(rs), take)
	} else {
		e.Requests.TestSome(len(rs), handle, len(rs), take)
	}
	return done, o.first
}

// Testall reports whether all of the requests are complete. If they are, it uses them up and returns the
// first failure by index. If not, it changes none of them. It does not block.
func Testall(rs []Request) (bool, error) { return testall("Testall", rs, nil) }

// TestallStatus is Testall. If all are complete, it sets st[i] to the status of each rs[i], as WaitallStatus
// does. st must be at least as long as rs.
func TestallStatus(rs []Request, st []Status) (bool, error) {
	if err := enough("TestallStatus", rs, st); err != nil {
		return false, err
	}
	return testall("TestallStatus", rs, st)
}

func testall(op string, rs []Request, st []Status) (bool, error) {
	o := outcomes{op: op, st: st}
	next := 0 // the statuses of requests before it are set
	inactive := func(end int) {
		if st != nil {
			empty(st[next:end])
		}
		next = end + 1
	}
	if e := engineOf(rs); e != nil {
		handle := func(i int) engine.Request { return rs[i].h }
		take := func(i int, s *engine.Status, failure error) {
			inactive(i)
			o.add(i, rs[i], s, failure)
			rs[i] = Request{}
		}
		done := false
		if mixed(e, rs) {
			done = spread(rs).TestAll(e.Hub(), take)
		} else {
			done = e.Requests.TestAll(len(rs), handle, take)
		}
		if !done {
			return false, nil
		}
	}
	inactive(len(rs))
	return true, o.first
}

// outcomes collects the results of several requests.
type outcomes struct {
	op    string
	st    []Status // of each, if not nil
	first error    // by index
}

// add adds the result of the i-th request. Most requests succeed, and need no status.
func (o *outcomes) add(i int, r Request, s *engine.Status, failure error) {
	if failure != nil || o.st != nil || r.c.checker != nil {
		o.tell(i, r, s, failure)
	}
}

func (o *outcomes) tell(i int, r Request, s *engine.Status, failure error) {
	status, err := r.taken(o.op, *s, failure)
	if o.first == nil {
		o.first = err
	}
	if o.st != nil {
		o.st[i] = status
	}
}

// taken processes the result of a request.
func (r Request) taken(op string, s engine.Status, err error) (Status, error) {
	r.c.checker.waitedFor(r.c, r.h, &s, err)
	st := r.c.statusOf(s)
	if err != nil {
		st.err = r.c.fail(op, NoPeer, NoPeer, err)
	}
	return st, st.err
}

// engineOf returns the engine of the first active request; nil if none is active.
func engineOf(rs []Request) *engine.Engine {
	for i := range rs {
		if rs[i].c != nil {
			return rs[i].c.e
		}
	}
	return nil
}

// mixed reports whether an active request belongs to an endpoint other than e.
func mixed(e *engine.Engine, rs []Request) bool {
	if !e.Hub().Several() {
		return false
	}
	_, of := atOneEndpoint(e, rs)
	return len(of) < len(rs)
}

// atOneEndpoint returns the longest prefix of rs whose active requests belong to one endpoint, and that
// endpoint; e if none is active.
func atOneEndpoint(e *engine.Engine, rs []Request) (*engine.Engine, []Request) {
	var of *engine.Engine
	for i := range rs {
		switch c := rs[i].c; {
		case c == nil || c.e == of:
		case of == nil:
			of = c.e
		default:
			return of, rs[:i]
		}
	}
	if of == nil {
		of = e
	}
	return of, rs
}

// spread describes requests of several endpoints to the engine.
func spread(rs []Request) engine.Spread {
	return engine.Spread{N: len(rs), At: func(i int) (*engine.Engine, engine.Request) {
		if rs[i].c == nil {
			return nil, engine.Request{}
		}
		return rs[i].c.e, rs[i].h
	}}
}

// someAnywhere waits for, or tests, requests of several endpoints.
func someAnywhere(hub *engine.Hub, rs []Request, limit int, take func(int, *engine.Status, error),
	wait bool) (taken int, active bool) {
	if wait {
		return spread(rs).WaitSome(hub, limit, take), true
	}
	return spread(rs).TestSome(hub, limit, take)
}

// enough refuses fewer statuses than requests.
func enough(op string, rs []Request, st []Status) error {
	if len(st) < len(rs) {
		return asError(op, fmt.Errorf("%w: room for only %d statuses of %d requests", ErrCount, len(st),
			len(rs)))
	}
	return nil
}
