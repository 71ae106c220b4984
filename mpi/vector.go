package mpi

// SendVec sends one message made of several pieces of memory, in order, and returns when they may be reused
// (MPI 4.1, 4.1.2 describes such a message by a datatype). Any receive of as many bytes receives it, such as
// Recv or RecvVec.
func SendVec(c *Comm, vec [][]byte, dst, tag int) error {
	r, err := isendVec(c, "SendVec", vec, dst, tag)
	if err != nil {
		return err
	}
	_, err = r.wait("SendVec")
	return c.fail("SendVec", dst, tag, err)
}

// RecvVec receives one message into several pieces of memory, filling one after the other, and returns when
// the message has arrived. A message longer than all of them together fills them and gives ErrTruncate.
// Status.Count is in bytes.
func RecvVec(c *Comm, vec [][]byte, src, tag int) (Status, error) {
	r, err := irecvVec(c, "RecvVec", vec, src, tag)
	if err != nil {
		return Status{}, err
	}
	st, err := r.wait("RecvVec")
	return st, c.fail("RecvVec", src, tag, err)
}

// IsendVec begins SendVec. The pieces, and vec itself, must not be changed until the request is complete.
func IsendVec(c *Comm, vec [][]byte, dst, tag int) (Request, error) {
	return isendVec(c, "IsendVec", vec, dst, tag)
}

// IrecvVec begins RecvVec. The pieces, and vec itself, belong to weft until the request is complete. The
// pieces must not overlap.
func IrecvVec(c *Comm, vec [][]byte, src, tag int) (Request, error) {
	return irecvVec(c, "IrecvVec", vec, src, tag)
}

func isendVec(c *Comm, op string, vec [][]byte, dst, tag int) (Request, error) {
	r, err := c.isend(&buffer{vec: orNoPieces(vec), elem: 1}, dst, tag, false)
	if err != nil {
		return Request{}, c.fail(op, dst, tag, err)
	}
	return r, nil
}

func irecvVec(c *Comm, op string, vec [][]byte, src, tag int) (Request, error) {
	r, err := c.irecv(&buffer{vec: orNoPieces(vec), elem: 1}, src, tag)
	if err != nil {
		return Request{}, c.fail(op, src, tag, err)
	}
	return r, nil
}

// orNoPieces returns vec, or an empty vector if it is nil.
func orNoPieces(vec [][]byte) [][]byte {
	if vec == nil {
		return [][]byte{}
	}
	return vec
}
