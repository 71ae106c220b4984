package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Scan combines in of the ranks up to this one and with it, element by element, into out (MPI 4.1, 6.11.1).
// All ranks pass the same length. in may be InPlace.
func Scan[T any](c *Comm, in, out []T, op Op[T]) error { return run(scan(c, in, out, op)) }

// Iscan begins a Scan. The buffers must not be touched until the request is complete, in not be changed.
func Iscan[T any](c *Comm, in, out []T, op Op[T]) (Request, error) {
	return start(scan(c, in, out, op))
}

// ScanInit sets up a Scan to be started again and again.
func ScanInit[T any](c *Comm, in, out []T, op Op[T]) (*Persistent, error) {
	return setUp(scan(c, in, out, op))
}

func scan[T any](c *Comm, in, out []T, op Op[T]) (a collectiveCall) {
	begin[T](&a, c, coll.OpScan)
	by(&a, op)
	reduced(&a, in, out)
	return a
}

// Exscan combines in of the ranks below this one, element by element, into out (MPI 4.1, 6.11.2). All ranks
// pass the same length; out stays as it is at rank 0, and may be nil there. in may be InPlace.
func Exscan[T any](c *Comm, in, out []T, op Op[T]) error { return run(exscan(c, in, out, op)) }

// Iexscan begins an Exscan. The buffers must not be touched until the request is complete, in not be changed.
func Iexscan[T any](c *Comm, in, out []T, op Op[T]) (Request, error) {
	return start(exscan(c, in, out, op))
}

// ExscanInit sets up an Exscan to be started again and again.
func ExscanInit[T any](c *Comm, in, out []T, op Op[T]) (*Persistent, error) {
	return setUp(exscan(c, in, out, op))
}

func exscan[T any](c *Comm, in, out []T, op Op[T]) (a collectiveCall) {
	begin[T](&a, c, coll.OpExscan)
	by(&a, op)
	if a.call.Rank > 0 || isInPlace(in) {
		reduced(&a, in, out)
		return a
	}
	noInPlace(&a, "out", out)
	a.call.Count = len(in)
	buffers(&a, in, nil)
	return a
}
