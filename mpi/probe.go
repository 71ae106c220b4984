package mpi

import "github.com/weft-mpi/weft/mpi/internal/engine"

// Probe waits for a message that a Recv with the same arguments would get, and leaves it there. Status.Bytes tells its size
// (MPI 4.1, 3.8.1).
func Probe(c *Comm, src, tag int) (Status, error) {
	if src == ProcNull && c.check() == nil {
		return nullStatus(), nil
	}
	err := c.checkRecv(src, tag)
	var st engine.Status
	if err == nil {
		st, err = c.e.Probe(c.context, src, tag)
	}
	if err != nil {
		return Status{}, c.fail("Probe", src, tag, err)
	}
	return statusOf(st), nil
}

// Iprobe tells whether there is such a message now. It does not block.
func Iprobe(c *Comm, src, tag int) (Status, bool, error) {
	if src == ProcNull && c.check() == nil {
		return nullStatus(), true, nil
	}
	err := c.checkRecv(src, tag)
	var st engine.Status
	var ok bool
	if err == nil {
		st, ok, err = c.e.Iprobe(c.context, src, tag)
	}
	if err != nil {
		return Status{}, false, c.fail("Iprobe", src, tag, err)
	}
	return statusOf(st), ok, nil
}
