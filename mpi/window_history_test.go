package mpi_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/anishathalye/porcupine"

	"github.com/weft-mpi/weft/mpi"
)

// historyVariable is how many operations a history has, of all ranks and on all types together.
const historyVariable = "WINDOW_OPERATIONS"

func TestWindowHistories(t *testing.T) {
	for name, env := range map[string][]string{
		"shm": {"WEFT_FABRIC=shm"}, "tcp": {"WEFT_FABRIC=tcp"},
		"tcp with lanes": {"WEFT_FABRIC=tcp", "WEFT_LANES=3"},
		"tcp with tls":   {"WEFT_FABRIC=tcp", "WEFT_TLS=on"},
	} {
		operations := 1000
		if name == "shm" {
			operations *= 4 // which overlap less
		}
		env = append(env, historyVariable+"="+cmp.Or(os.Getenv(historyVariable), strconv.Itoa(operations)))
		t.Run(name, func(t *testing.T) { together(t, 3, windowHistories, env...) })
		t.Run(name+", handlers", func(t *testing.T) {
			together(t, 3, windowHistories, append(env, "WEFT_CQ_CORES=0")...)
		})
	}
}

// Accumulates of all kinds, on elements of each type and from several goroutines of each rank, are atomic: for
// each element there is an order of all operations on it which explains what each of them returned, and which
// keeps to the times at which they were called and complete.
var windowHistories = body("window histories", func(_ context.Context, world *mpi.Comm) error {
	total, err := strconv.Atoi(os.Getenv(historyVariable))
	if err != nil {
		return err
	}
	n := max(total/len(historyTypes)/world.Size()/historyCallers, 1)
	for _, of := range historyTypes {
		if err := of(world, n); err != nil {
			return err
		}
	}
	return nil
})

var historyTypes = []func(world *mpi.Comm, n int) error{
	integerHistory[int8], integerHistory[int16], integerHistory[int32], integerHistory[int64],
	integerHistory[int], integerHistory[uint8], integerHistory[uint16], integerHistory[uint32],
	integerHistory[uint64], integerHistory[uint], floatHistory[float32], floatHistory[float64],
	complexHistory[complex64], complexHistory[complex128], locHistory[float64], locHistory[int32],
	opaqueHistory,
}

// operator is one that a type has, and what it is to do.
type operator[T any] struct {
	op    mpi.Op[T]
	apply func(there, operand T) T
}

func common[T any]() []operator[T] {
	return []operator[T]{{mpi.Replace[T](), func(_, b T) T { return b }}, {mpi.NoOp[T](), func(a, _ T) T { return a }}}
}

func arithmetic[T mpi.Number]() []operator[T] {
	return append(common[T](), operator[T]{mpi.Sum[T](), func(a, b T) T { return a + b }},
		operator[T]{mpi.Prod[T](), func(a, b T) T { return a * b }})
}

func ordered[T interface {
	mpi.Number
	mpi.Ordered
}]() []operator[T] {
	return append(arithmetic[T](), operator[T]{mpi.Max[T](), func(a, b T) T { return max(a, b) }},
		operator[T]{mpi.Min[T](), func(a, b T) T { return min(a, b) }})
}

func integerHistory[T interface {
	mpi.Integer
	mpi.Number
	mpi.Ordered
}](world *mpi.Comm, n int) error {
	truth := func(b bool) T {
		if b {
			return 1
		}
		return 0
	}
	ops := append(ordered[T](), operator[T]{mpi.BAnd[T](), func(a, b T) T { return a & b }},
		operator[T]{mpi.BOr[T](), func(a, b T) T { return a | b }},
		operator[T]{mpi.BXor[T](), func(a, b T) T { return a ^ b }},
		operator[T]{mpi.LAnd[T](), func(a, b T) T { return truth(a != 0 && b != 0) }},
		operator[T]{mpi.LOr[T](), func(a, b T) T { return truth(a != 0 || b != 0) }})
	return history(world, n, ops, func(r *rand.Rand) T { return T(r.IntN(6)) })
}

func floatHistory[T float32 | float64](world *mpi.Comm, n int) error {
	return history(world, n, ordered[T](), func(r *rand.Rand) T { return T(r.IntN(12)) / 4 })
}

func complexHistory[T complex64 | complex128](world *mpi.Comm, n int) error {
	return history(world, n, arithmetic[T](), func(r *rand.Rand) T {
		return T(complex(float64(r.IntN(3)), float64(r.IntN(3))))
	})
}

func locHistory[V float64 | int32](world *mpi.Comm, n int) error {
	type loc = mpi.Loc[V]
	better := func(sign V) func(a, b loc) loc {
		return func(a, b loc) loc {
			if d := sign * (b.Value - a.Value); d > 0 || d == 0 && b.Index < a.Index {
				return b
			}
			return a
		}
	}
	ops := append(common[loc](), operator[loc]{mpi.MaxLoc[V](), better(1)},
		operator[loc]{mpi.MinLoc[V](), better(-1)})
	return history(world, n, ops, func(r *rand.Rand) loc {
		return loc{Value: V(r.IntN(4)), Index: int64(r.IntN(4))}
	})
}

func opaqueHistory(world *mpi.Comm, n int) error {
	return history(world, n, common[[3]byte](), func(r *rand.Rand) [3]byte {
		return [3]byte{byte(r.IntN(2)), 7, byte(r.IntN(2))}
	})
}

const (
	historyCallers  = 2 // goroutines of each rank
	historyElements = 2 // of each rank's part
	compareAndSwap  = -1
)

// event is an operation on one element. Its times are of a clock that all ranks of the host have.
type event[T any] struct {
	Begin, End            int64
	Caller                int32
	Rank, At              int32
	Op                    int32 // of the operators; or compareAndSwap
	Operand, Compare, Was T
	Silent                bool // nobody was told Was
}

func history[T comparable](world *mpi.Comm, n int, ops []operator[T], value func(*rand.Rand) T) error {
	win, err := mpi.WinAllocate[T](world, historyElements)
	if err := firstError(err, win.LockAll(), mpi.Barrier(world)); err != nil {
		return err
	}
	events := make([][]event[T], historyCallers)
	errs := make([]error, historyCallers)
	var callers sync.WaitGroup
	for i := range historyCallers {
		callers.Go(func() {
			c := historyCaller[T]{win: win, ops: ops, value: value, number: int32(world.Rank()*historyCallers + i)}
			c.random = rand.New(rand.NewPCG(uint64(c.number), uint64(n)))
			for range n {
				if errs[i] = c.operate(world); errs[i] != nil {
					break
				}
			}
			events[i] = c.events
		})
	}
	callers.Wait()
	if err := firstError(append(errs, win.UnlockAll())...); err != nil {
		return err
	}
	mine := slices.Concat(events...)
	if world.Rank() > 0 {
		return firstError(mpi.Send(world, mine, 0, 0), win.Free())
	}
	for rank := 1; rank < world.Size(); rank++ {
		st, err := mpi.Probe(world, rank, 0)
		if err != nil {
			return err
		}
		theirs := make([]event[T], st.Bytes()/int(unsafe.Sizeof(mine[0])))
		if _, err := mpi.Recv(world, theirs, rank, 0); err != nil {
			return err
		}
		mine = append(mine, theirs...)
	}
	return firstError(linearizable(mine, ops), win.Free())
}

type historyCaller[T comparable] struct {
	win    *mpi.Win[T]
	ops    []operator[T]
	value  func(*rand.Rand) T
	random *rand.Rand
	number int32
	events []event[T]
}

// operate carries out an operation on an element, or on two elements at once.
func (c *historyCaller[T]) operate(world *mpi.Comm) (err error) {
	r := c.random
	e := event[T]{Caller: c.number, Rank: int32(r.IntN(world.Size())), At: int32(r.IntN(historyElements)),
		Op: int32(r.IntN(len(c.ops))), Operand: c.value(r), Compare: c.value(r)}
	rank, at, op := int(e.Rank), int(e.At), c.ops[e.Op].op
	e.Begin = hostClock()
	switch r.IntN(5) {
	case 0:
		e.Was, err = c.win.FetchAndOp(e.Operand, rank, at, op)
	case 1:
		e.Op = compareAndSwap
		e.Was, err = c.win.CompareAndSwap(e.Compare, e.Operand, rank, at)
	case 2:
		e.Silent = true
		err = firstError(c.win.Accumulate([]T{e.Operand}, rank, at, op), c.win.Flush(rank))
	case 3:
		was := make([]T, historyElements)
		operands := []T{e.Operand, c.value(r)}
		err = firstError(c.win.GetAccumulate(operands, was, rank, 0, op), c.win.Flush(rank))
		end := hostClock()
		for i := range was {
			e.At, e.Operand, e.Was, e.End = int32(i), operands[i], was[i], end
			c.events = append(c.events, e)
		}
		return err
	case 4:
		if rank = world.Rank(); !c.local(&e, rank) {
			return nil
		}
	}
	e.End = hostClock()
	c.events = append(c.events, e)
	return err
}

// local is an operation by sync/atomic on this rank's part, if elements have a size that it is for.
func (c *historyCaller[T]) local(e *event[T], rank int) bool {
	e.Rank, e.Op = int32(rank), compareAndSwap
	at := unsafe.Pointer(&c.win.Local()[e.At])
	var swapped bool
	switch unsafe.Sizeof(e.Was) {
	case 4:
		swapped = atomic.CompareAndSwapUint32((*uint32)(at), *(*uint32)(unsafe.Pointer(&e.Compare)),
			*(*uint32)(unsafe.Pointer(&e.Operand)))
	case 8:
		swapped = atomic.CompareAndSwapUint64((*uint64)(at), *(*uint64)(unsafe.Pointer(&e.Compare)),
			*(*uint64)(unsafe.Pointer(&e.Operand)))
	default:
		return false
	}
	e.Was = e.Compare
	if !swapped { // it was something else
		e.Op = notEqual
	}
	return true
}

// notEqual is a comparison that has found another element than Compare.
const notEqual = -2

// hostClock is the same for all processes of the host.
func hostClock() int64 {
	var now syscall.Timespec
	const monotonic = 1
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(errno)
	}
	return now.Nano()
}

// same reports whether two elements are the same, 0 and -0 not being so.
func same[T comparable](a, b T) bool {
	switch any(a).(type) {
	case float32, float64, complex64, complex128:
		size := unsafe.Sizeof(a)
		return string(unsafe.Slice((*byte)(unsafe.Pointer(&a)), size)) ==
			string(unsafe.Slice((*byte)(unsafe.Pointer(&b)), size))
	}
	return a == b
}

// linearizable looks for the order of each element's operations.
func linearizable[T comparable](events []event[T], ops []operator[T]) error {
	type place struct{ rank, at int32 }
	histories := map[place][]porcupine.Operation{}
	for _, e := range events {
		k := place{e.Rank, e.At}
		histories[k] = append(histories[k], porcupine.Operation{ClientId: int(e.Caller), Input: e,
			Call: e.Begin, Return: e.End})
	}
	var zero T
	model := porcupine.Model{
		Init: func() any { return zero },
		Step: func(state, input, _ any) (bool, any) {
			there, e := state.(T), input.(event[T])
			if e.Op == notEqual {
				return !same(there, e.Compare), there
			}
			if !e.Silent && !same(there, e.Was) {
				return false, nil
			}
			if e.Op >= 0 {
				return true, ops[e.Op].apply(there, e.Operand)
			}
			if same(there, e.Compare) {
				return true, e.Operand
			}
			return true, there
		},
		Equal: func(a, b any) bool { return same(a.(T), b.(T)) },
	}
	for k, history := range histories {
		if !porcupine.CheckOperations(model, history) {
			return fmt.Errorf("%T: no order explains the %d operations on element %d of rank %d", zero,
				len(history), k.at, k.rank)
		}
	}
	return nil
}
