package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Reduce combines in from all ranks, element by element, into out at root (MPI 4.1, 6.9.1). All ranks pass
// the same length. Only root uses out. in may be InPlace at root.
func Reduce[T any](c *Comm, in, out []T, op Op[T], root int) error {
	if mayRepeat[T](c) && !isInPlace(in) {
		var result []byte
		apart := true
		if root == c.rank {
			result, apart = bytesIn(out), len(in) == len(out) && disjoint(memory(in), memory(out))
		}
		key := callKey{coll.OpReduce, sizeOf[T](), len(in), root, op.operator}
		if apart {
			if done, err := c.repeat(key, bytesIn(in), result); done {
				return err
			}
		}
	}
	return run(reduce(c, in, out, op, root))
}

// Ireduce begins a Reduce. Until the request is complete, out must not be accessed and in must not be
// changed.
func Ireduce[T any](c *Comm, in, out []T, op Op[T], root int) (Request, error) {
	return startCall(reduce(c, in, out, op, root))
}

// ReduceInit sets up a Reduce that can be started repeatedly.
func ReduceInit[T any](c *Comm, in, out []T, op Op[T], root int) (*Persistent, error) {
	return setUp(reduce(c, in, out, op, root))
}

func reduce[T any](c *Comm, in, out []T, op Op[T], root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpReduce)
	by(&a, op)
	if a.rooted(root) {
		reduced(&a, in, out)
		return a
	}
	noInPlace(&a, "in", in)
	a.call.Count, a.call.OwnRight = len(in), a.call.Predefined
	buffers(&a, in, nil)
	return a
}
