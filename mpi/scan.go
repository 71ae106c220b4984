package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Scan combines in from this rank and all lower ranks, element by element, into out (MPI 4.1, 6.11.1). All
// ranks pass the same length. in may be InPlace.
func Scan[T any](c *Comm, in, out []T, op Op[T]) error {
	if done, err := repeatReduction(c, coll.OpScan, in, out, op); done {
		return err
	}
	return run(scan(c, in, out, op))
}

// Iscan begins a Scan. Until the request is complete, out must not be accessed and in must not be changed.
func Iscan[T any](c *Comm, in, out []T, op Op[T]) (Request, error) {
	return startCall(scan(c, in, out, op))
}

// ScanInit sets up a Scan that can be started repeatedly.
func ScanInit[T any](c *Comm, in, out []T, op Op[T]) (*Persistent, error) {
	return setUp(scan(c, in, out, op))
}

func scan[T any](c *Comm, in, out []T, op Op[T]) (a collectiveCall) {
	begin[T](&a, c, coll.OpScan)
	by(&a, op)
	reduced(&a, in, out)
	return a
}

// Exscan combines in from all lower ranks, element by element, into out (MPI 4.1, 6.11.2). All ranks pass the
// same length. At rank 0, out is unchanged and may be nil. in may be InPlace.
func Exscan[T any](c *Comm, in, out []T, op Op[T]) error {
	if done, err := repeatReduction(c, coll.OpExscan, in, out, op); done {
		return err
	}
	return run(exscan(c, in, out, op))
}

// Iexscan begins an Exscan. Until the request is complete, out must not be accessed and in must not be
// changed.
func Iexscan[T any](c *Comm, in, out []T, op Op[T]) (Request, error) {
	return startCall(exscan(c, in, out, op))
}

// ExscanInit sets up an Exscan that can be started repeatedly.
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
