package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Bcast gives every rank what buf holds at root (MPI 4.1, 6.4). All ranks pass the same length.
func Bcast[T any](c *Comm, buf []T, root int) error { return run(bcast(c, buf, root)) }

// Ibcast begins a Bcast. buf must not be touched until the request is complete, at root not be changed.
func Ibcast[T any](c *Comm, buf []T, root int) (Request, error) { return start(bcast(c, buf, root)) }

// BcastInit sets up a Bcast to be started again and again.
func BcastInit[T any](c *Comm, buf []T, root int) (*Persistent, error) {
	return setUp(bcast(c, buf, root))
}

func bcast[T any](c *Comm, buf []T, root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpBcast)
	a.rooted(root)
	noInPlace(&a, "buf", buf)
	a.call.Count = len(buf)
	buffers(&a, nil, buf)
	return a
}
