package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

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

// BcastView copies the elements of root's view into those of the views of all ranks (MPI 4.1, 6.4 and 5.1).
// The views may differ, but have the same number of elements. A view whose elements are not contiguous is
// copied to memory of its length on the way. BcastView refuses a view that contains an element twice, except
// at root.
func BcastView[T any](c *Comm, v View[T], root int) error {
	err := v.err()
	if err == nil {
		err = checkElement[T]()
	}
	if err == nil {
		err = c.checkRoot(root)
	}
	if err == nil && c.rank != root {
		err = v.distinct()
	}
	if err != nil {
		return c.failColl("BcastView", err)
	}
	buf, contiguous := v.slice()
	if !contiguous {
		if buf = make([]T, v.Len()); c.rank == root {
			v.Pack(buf)
		}
	}
	if err := run(bcast(c, buf, root)); err != nil {
		return c.failColl("BcastView", err)
	}
	if !contiguous && c.rank != root {
		v.Unpack(buf)
	}
	return nil
}
