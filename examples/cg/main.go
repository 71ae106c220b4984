// Cg solves a system of linear equations, Ax = b, by the method of conjugate gradients. A is a sparse matrix,
// symmetric and positive definite, in a Matrix Market file.
//
//	weft run -n 4 ./examples/cg
//	weft run -n 4 ./examples/cg -tolerance 1e-12 -output x.mtx examples/cg/testdata/laplace.mtx
//	weft run -n 4 ./examples/cg -rhs x.mtx examples/cg/testdata/laplace.mtx
//
// Without a file, A is the matrix in testdata/laplace.mtx. Without -rhs the program uses the b whose solution
// is a vector of ones, and prints the distance of its answer. It also computes the residual of the answer,
// and fails unless it is small enough.
//
// It shows how sparse matrices are worked with:
//
//   - rank 0 reads the matrix, with an error that names the line (matrixmarket.go), and Scatterv gives each
//     rank some of its rows (distribute.go);
//   - the ranks find out once which numbers they need of each other: Alltoall and Alltoallv tell each rank
//     what the others want, and then a Graph connects those that exchange anything (halo.go);
//   - each iteration, a persistent NeighborAlltoallv fetches these numbers while the rank multiplies by what
//     it has (halo.go, solve.go);
//   - Allreduce makes the scalar products, the same to the last bit at every rank, so that all stop together
//     (solve.go);
//   - file.WriteOrdered writes the answer, of which each rank has a part (output.go).
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strings"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("cg: ")
	if err := mpi.Run(context.Background(), cg); err != nil {
		log.Fatal(err)
	}
}

// problem has the settings that every rank needs.
type problem struct {
	Rows       int // of the matrix; 0 if there is nothing to do
	Iterations int
	Tolerance  float64
}

func cg(_ context.Context, world *mpi.Comm) error {
	var p problem
	var o options
	var s system // at rank 0 alone
	if world.Rank() == 0 {
		var err error
		if p, o, s, err = prepare(os.Args[1:]); err != nil {
			return err
		}
	}
	p, err := mpi.BcastValue(world, p, 0)
	if err != nil || p.Rows == 0 {
		return err // without rows rank 0 was asked for help
	}
	if o, err = mpi.BcastValue(world, o, 0); err != nil {
		return err
	}
	rows := newRows(p.Rows, world.Size())
	a, b, err := distribute(world, rows, s)
	if err != nil {
		return err
	}
	m, err := newMatrix(world, rows, a)
	if err != nil {
		return err
	}
	begin := mpi.Wtime()
	x, done, err := solve(m, b, p)
	if err != nil {
		return err
	}
	seconds := mpi.Wtime() - begin
	all, err := collect(world, rows, x)
	if err != nil {
		return err
	}
	if err := m.free(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := verify(p, s, all); err != nil {
			return err
		}
	}
	if o.Output != "" {
		if err := write(world, o.Output, p.Rows, x); err != nil {
			return fmt.Errorf("-output: %w", err)
		}
	}
	if world.Rank() == 0 {
		report(p, o, s, done, all, world.Size(), seconds)
	}
	return nil
}

// options are the names of files. BcastValue carries them, so the fields are exported.
type options struct{ Input, RHS, Output string }

// system is the matrix and the right-hand side.
type system struct {
	a csr
	b []float64
}

// prepare reads the flags and the files. When help is asked for it prints it and returns no problem.
func prepare(args []string) (problem, options, system, error) {
	var p problem
	var o options
	flags := flag.NewFlagSet("cg", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is returned, and printed once
	flags.StringVar(&o.RHS, "rhs", "", "a Matrix Market `file` with b\n"+
		"(default: the b whose solution is ones)")
	flags.StringVar(&o.Output, "output", "", "`file` for x, in Matrix Market format")
	flags.IntVar(&p.Iterations, "iterations", 0, "number of iterations at most\n"+
		"(default: ten times the number of rows)")
	flags.Float64Var(&p.Tolerance, "tolerance", 1e-8,
		"largest residual to stop at, as a share of b, from 1e-14 to 1")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("cg solves linear equations: weft run -n RANKS ./examples/cg [flags] [MATRIX.mtx]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return problem{}, o, system{}, nil
	case err != nil:
		return p, o, system{}, err
	case flags.NArg() > 1:
		return p, o, system{}, fmt.Errorf("%d matrices: name one file, after the flags; -h tells more",
			flags.NArg())
	case p.Iterations < 0:
		return p, o, system{}, fmt.Errorf("-iterations %d: must be 0 or more", p.Iterations)
	case !(p.Tolerance >= 1e-14 && p.Tolerance <= 1):
		return p, o, system{}, fmt.Errorf("-tolerance %v: must be from 1e-14 to 1", p.Tolerance)
	}
	o.Input = flags.Arg(0)
	s, err := load(o)
	if err != nil {
		return p, o, system{}, err
	}
	p.Rows = s.a.rows()
	if p.Iterations == 0 {
		p.Iterations = 10 * p.Rows
	}
	return p, o, s, nil
}

// laplace is the matrix that is solved for without a file.
//
//go:embed testdata/laplace.mtx
var laplace string

// load reads the files.
func load(o options) (system, error) {
	entries, err := coordinates{}, error(nil)
	if o.Input == "" {
		entries, err = parseMatrix(strings.NewReader(laplace))
	} else {
		entries, err = read(o.Input, parseMatrix)
	}
	if err != nil {
		return system{}, err
	}
	s := system{a: entries.compress()}
	if err := s.a.suits(); err != nil {
		return system{}, fmt.Errorf("%s: %w", o.Input, err)
	}
	if o.RHS == "" {
		ones := make([]float64, s.a.rows())
		for i := range ones {
			ones[i] = 1
		}
		s.b = s.a.times(ones)
		return s, nil
	}
	if s.b, err = read(o.RHS, parseVector); err != nil {
		return system{}, fmt.Errorf("-rhs: %w", err)
	}
	if len(s.b) != s.a.rows() {
		return system{}, fmt.Errorf("-rhs: %s: %d numbers; the matrix has %d rows", o.RHS, len(s.b),
			s.a.rows())
	}
	return s, nil
}

// read reads a file by one of the parsers.
func read[T any](name string, parse func(io.Reader) (T, error)) (T, error) {
	f, err := os.Open(name)
	if err != nil {
		return *new(T), err
	}
	defer f.Close()
	v, err := parse(f)
	if err != nil {
		return *new(T), fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// residual returns the residual of an answer, computed without the other ranks, and the norm of b.
func (s system) residual(x []float64) (residual, size float64) {
	for i, y := range s.a.times(x) {
		residual, size = math.Hypot(residual, s.b[i]-y), math.Hypot(size, s.b[i])
	}
	return residual, size
}

// verify refuses a wrong answer. The residual of the iteration is updated, not computed, and drifts from the
// true one by rounding.
func verify(p problem, s system, x []float64) error {
	residual, size := s.residual(x)
	if allowed := 10 * (p.Tolerance + 1e-13) * size; !(residual <= allowed) {
		return fmt.Errorf("the answer is wrong: the residual is %.3g, and should be at most %.3g", residual,
			allowed)
	}
	return nil
}

func report(p problem, o options, s system, done outcome, x []float64, ranks int, seconds float64) {
	residual, size := s.residual(x)
	took, name := time.Duration(seconds*float64(time.Second)), o.Input
	if name == "" {
		name = "laplace.mtx"
	}
	fmt.Printf("%s: %d rows, %d numbers, solved by %d ranks in %d iterations and %v; residual %.3g of b",
		name, p.Rows, len(s.a.values), ranks, done.iterations, took.Round(10*time.Microsecond),
		residual/max(size, math.SmallestNonzeroFloat64))
	if o.RHS == "" {
		wrong := 0.0
		for _, v := range x {
			wrong = max(wrong, math.Abs(v-1))
		}
		fmt.Printf("; wrong by at most %.3g", wrong)
	}
	fmt.Println()
}
