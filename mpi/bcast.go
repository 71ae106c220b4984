package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Bcast copies buf from root to every rank (MPI 4.1, 6.4). All ranks pass the same length.
func Bcast[T any](c *Comm, buf []T, root int) error {
	if mayRepeat[T](c) && !isInPlace(buf) {
		key := callKey{operation: coll.OpBcast, elem: sizeOf[T](), count: len(buf), root: root}
		if done, err := c.repeat(key, nil, bytesIn(buf)); done {
			return err
		}
	}
	return run(bcast(c, buf, root))
}

// Ibcast begins a Bcast. Until the request is complete, buf must not be accessed or, at root, changed.
func Ibcast[T any](c *Comm, buf []T, root int) (Request, error) {
	return startCall(bcast(c, buf, root))
}

// BcastInit sets up a Bcast that can be started repeatedly.
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
