package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Reduce combines in from all ranks, element by element, into out at root (MPI 4.1, 6.9.1). All ranks pass
// the same length. Only root uses out. in may be InPlace at root.
func Reduce[T any](c *Comm, in, out []T, op Op[T], root int) error {
	if mayRepeat[T](c) && !isInPlace(in) {
		result := bytesIn(out)
		if root != c.rank {
			result = nil
		}
		if root != c.rank || len(in) == len(out) && disjoint(memory(in), result) {
			key := callKey{operation: coll.OpReduce, elem: sizeOf[T](), count: len(in), root: root,
				op: op.operator}
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
		a.call.OwnRight = a.err == nil && a.op.Predefined && !sameBeginning(a.in, a.out)
		return a
	}
	onlyIn(&a, in)
	return a
}
