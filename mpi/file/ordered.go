package file

import (
	"github.com/weft-mpi/weft/mpi"
)

// WriteOrdered appends the bytes of all ranks to the file, in rank order (MPI 4.1, 14.4.4,
// MPI_File_write_ordered). No rank needs to know how many bytes the others have. WriteOrdered is collective.
func WriteOrdered(f *File, b []byte) error {
	r, err := IwriteOrdered(f, b)
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}

// IwriteOrdered begins a WriteOrdered. Until the Request is complete, b must not be changed.
func IwriteOrdered(f *File, b []byte) (*Request, error) {
	v := mpi.Whole(b)
	return start(f, "WriteOrdered", Range(0, len(b)), v, (*transfer).append)
}

// append moves the regions of all ranks behind one another, and behind the end of the file.
func (t *transfer) append() error {
	at := t.end
	for rank, e := range t.extents {
		if rank == t.f.comm.Rank() {
			t.fail(t.regions.Move(at))
		}
		if e.Bytes > 0 {
			e.Lo, e.Hi = at, at+e.Bytes
		}
		t.extents[rank] = e
		at += e.Bytes
	}
	return t.write()
}
