package engine

import (
	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
)

// BeginPut is Put with a request, which completes when src may be reused.
func (t *Target) BeginPut(src []byte, at int, s *Canceller) (Request, error) {
	return t.begin(func(r *request) error { return t.move(transport.OpWrite, src, at, r, s) })
}

// BeginGet is Get with a request, which completes when dst has the bytes.
func (t *Target) BeginGet(dst []byte, at int, s *Canceller) (Request, error) {
	return t.begin(func(r *request) error { return t.move(transport.OpRead, dst, at, r, s) })
}

// BeginUpdate is Update with a request, which completes when the target has executed it and old has the old
// values.
func (t *Target) BeginUpdate(src, old []byte, at int, op rma.Code, s *Canceller) (Request, error) {
	return t.begin(func(r *request) error { return t.update(src, old, nil, at, op, r, s) })
}

// Await waits for a request of BeginPut or BeginGet. If s ends first the operation goes on.
func (t *Target) Await(h Request, s *Canceller) error {
	if h == (Request{}) {
		return nil
	}
	t.w.e.Cancels.Bind(h, s)
	_, err := t.w.e.Requests.waitHandle(h)
	return err
}

// begin begins an operation with a request. openTransfers of the request counts the transfers of the
// operation that are under way, plus one until all have begun.
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
			e.Requests.detach(r) // the transfers that have begun end by themselves
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

// letGo detaches the operations of a request, which go on.
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
