package engine

import (
	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
)

// BeginPut is Put with a request, which completes when src is the caller's again.
func (t *Target) BeginPut(src []byte, at int, s *Canceller) (Request, error) {
	return t.begin(func(r *request) error { return t.move(transport.OpWrite, src, at, r, s) })
}

// BeginGet is Get with a request, which completes when dst has the bytes.
func (t *Target) BeginGet(dst []byte, at int, s *Canceller) (Request, error) {
	return t.begin(func(r *request) error { return t.move(transport.OpRead, dst, at, r, s) })
}

// BeginUpdate is Update with a request, which completes when the target has carried it out and old has what
// was there.
func (t *Target) BeginUpdate(src, old []byte, at int, op rma.Code, s *Canceller) (Request, error) {
	return t.begin(func(r *request) error { return t.update(src, old, nil, at, op, r, s) })
}

// Await returns when a request of BeginPut or BeginGet is complete, or s ends: then the operation goes on.
func (t *Target) Await(h Request, s *Canceller) error {
	if h == (Request{}) {
		return nil
	}
	t.w.e.Cancels.Bind(h, s)
	_, err := t.w.e.Requests.waitHandle(h)
	return err
}

// begin gives the request of an operation. The request counts the parts of the operation that are under way
// in openTransfers; until all have begun it has one more.
func (t *Target) begin(operation func(r *request) error) (Request, error) {
	e := t.w.e
	e.mu.Lock()
	r := e.Requests.get()
	r.kind, r.rank, r.openTransfers, r.observed = kindOneSided, t.rank, 1, true
	h := r.handle()
	e.mu.Unlock()
	err := operation(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.openTransfers--; r.openTransfers > 0 {
		if err != nil {
			e.Requests.detach(r) // what has begun ends by itself
			return Request{}, err
		}
		return h, nil
	}
	e.Requests.complete(r, r.err)
	if err != nil {
		_, _ = e.Requests.collect(h, r)
		return Request{}, err
	}
	return h, nil
}

// letGo has the operations that are under way go on without their request.
func (w *Windows) letGo(r *request) {
	for _, f := range w.e.fabrics {
		for _, c := range f.oneSided.chunks {
			for i := range c.ops {
				if o := &c.ops[i]; o.request == r {
					o.request = nil
				}
			}
		}
	}
	r.openTransfers = 0
}
