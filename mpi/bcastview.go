package mpi

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
