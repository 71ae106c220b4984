package mpi

import "github.com/weft-mpi/weft/mpi/internal/engine"

// Probe waits for a message that a Recv with the same arguments would receive, and does not take it.
// Status.Bytes returns its size, and Status.Count is the same: no receive has said yet what the elements are
// (MPI 4.1, 3.8.1). If several goroutines receive, another one may get the message first: use Mprobe then, or
// RecvSlice.
func Probe(c *Comm, src, tag int) (Status, error) {
	err := c.checkRecv(src, tag)
	if err == nil && src == ProcNull {
		return nullStatus(), nil
	}
	var st engine.Status
	if err == nil {
		st, err = c.e.Probe(c.context, c.worldRank(src), tag, c.canceller)
	}
	if err != nil {
		return Status{}, c.fail("Probe", src, tag, err)
	}
	return c.statusOf(st), nil
}

// Iprobe reports whether there is such a message now. It does not block. Status.Count is in bytes.
func Iprobe(c *Comm, src, tag int) (Status, bool, error) {
	err := c.checkRecv(src, tag)
	if err == nil && src == ProcNull {
		return nullStatus(), true, nil
	}
	var st engine.Status
	var ok bool
	if err == nil {
		st, ok, err = c.e.Iprobe(c.context, c.worldRank(src), tag)
	}
	if err != nil {
		return Status{}, false, c.fail("Iprobe", src, tag, err)
	}
	return c.statusOf(st), ok, nil
}
