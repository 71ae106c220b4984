package engine

import (
	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
)

// BeginPut is Put with a request, which completes when src is the caller's again.
func (t *Target) BeginPut(src []byte, at int) (Request, error) {
	return t.begin(func(r *request) error { return t.move(transport.OpWrite, src, at, r) })
}

// BeginGet is Get with a request, which completes when dst has the bytes.
func (t *Target) BeginGet(dst []byte, at int) (Request, error) {
	return t.begin(func(r *request) error { return t.move(transport.OpRead, dst, at, r) })
}

// BeginUpdate is Update with a request, which completes when the target has carried it out and old has what
// was there.
func (t *Target) BeginUpdate(src, old []byte, at int, op rma.Code) (Request, error) {
	return t.begin(func(r *request) error { return t.update(src, old, nil, at, op, r) })
}

// begin gives the request of an operation. The request counts the parts of the operation that are under way
// in openTransfers; until all have begun it has one more.
func (t *Target) begin(operation func(r *request) error) (Request, error) {
	e := t.w.e
	e.mu.Lock()
	r := e.requests.get()
	r.kind, r.rank, r.openTransfers, r.observed = kindOneSided, t.rank, 1, true
	h := r.handle()
	e.mu.Unlock()
	err := operation(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.openTransfers--; r.openTransfers > 0 {
		if err != nil {
			e.requests.detach(r) // what has begun ends by itself
			return Request{}, err
		}
		return h, nil
	}
	e.requests.complete(r, r.err)
	if err != nil {
		_, _ = e.requests.collect(h, r)
		return Request{}, err
	}
	return h, nil
}
