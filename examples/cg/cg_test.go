package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// eliminate solves the system by Gauss's elimination. The matrix needs no pivoting: it is positive definite.
func eliminate(s system) []float64 {
	n := s.a.rows()
	full := make([][]float64, n)
	for row := range full {
		full[row] = make([]float64, n+1)
		for i := s.a.starts[row]; i < s.a.starts[row+1]; i++ {
			full[row][s.a.columns[i]] = s.a.values[i]
		}
		full[row][n] = s.b[row]
	}
	for k := range n {
		for row := k + 1; row < n; row++ {
			factor := full[row][k] / full[k][k]
			for column := k; column <= n; column++ {
				full[row][column] -= factor * full[k][column]
			}
		}
	}
	x := make([]float64, n)
	for k := n - 1; k >= 0; k-- {
		x[k] = full[k][n]
		for column := k + 1; column < n; column++ {
			x[k] -= full[k][column] * x[column]
		}
		x[k] /= full[k][k]
	}
	return x
}

// irregular is a matrix in which any row may need any other, and a right-hand side.
func irregular(n int) (matrix, rhs []byte) {
	r := rand.New(rand.NewPCG(5, uint64(n)))
	var b bytes.Buffer
	lines := 0
	for row := range n {
		fmt.Fprintf(&b, "%d %d %v\n", row+1, row+1, 10+r.Float64())
		lines++
		for range min(row, 2) {
			fmt.Fprintf(&b, "%d %d %v\n", row+1, r.IntN(row)+1, -r.Float64())
			lines++
		}
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	return append(fmt.Appendf(nil, "%%%%MatrixMarket matrix coordinate real symmetric\n%d %d %d\n", n, n, lines),
		b.Bytes()...), appendNumbers(appendHeader(nil, len(v)), v)
}

func TestTheSolutionIsThatOfElimination(t *testing.T) {
	laplace, err := os.ReadFile("testdata/laplace.mtx")
	require.NoError(t, err)
	for _, c := range []struct{ rows, ranks int }{{100, 1}, {100, 2}, {100, 4}, {100, 8}, {37, 3}, {2, 4}, {1, 2}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			dir := t.TempDir()
			o := options{Input: filepath.Join(dir, "a.mtx"), RHS: filepath.Join(dir, "b.mtx")}
			a, b := irregular(c.rows)
			if c.rows == 100 {
				a = laplace
			}
			require.NoError(t, os.WriteFile(o.Input, a, 0o666))
			require.NoError(t, os.WriteFile(o.RHS, b, 0o666))
			_, stderr, err := exampletest.Launch(t, c.ranks, dir, "-rhs", "b.mtx", "-output", "x.mtx", "-tolerance",
				"1e-13", "a.mtx")
			require.NoError(t, err, stderr)
			x, err := read(filepath.Join(dir, "x.mtx"), parseVector)
			require.NoError(t, err)
			s, err := load(o)
			require.NoError(t, err)
			require.InDeltaSlice(t, eliminate(s), x, 1e-11)
		})
	}
}

func TestWithoutARightHandSideTheSolutionIsOnes(t *testing.T) {
	file, err := filepath.Abs("testdata/laplace.mtx")
	require.NoError(t, err)
	stdout, stderr, err := exampletest.Launch(t, 4, t.TempDir(), file)
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "laplace.mtx: 100 rows, 460 numbers, solved by 4 ranks in ")
	var wrong float64
	_, after, _ := strings.Cut(stdout, "wrong by at most ")
	_, err = fmt.Sscanf(after, "%g", &wrong)
	require.NoError(t, err, stdout)
	require.Less(t, wrong, 1e-7)
}

func TestAWrongAnswerIsFound(t *testing.T) {
	s, err := load(options{Input: "testdata/laplace.mtx"})
	require.NoError(t, err)
	x := make([]float64, 100)
	for i := range x {
		x[i] = 1
	}
	p := problem{Rows: 100, Tolerance: 1e-8}
	require.NoError(t, verify(p, s, x))
	x[7] += 1e-5
	require.ErrorContains(t, verify(p, s, x), "the answer is wrong: the residual is ")
}

// header is the beginning of a matrix.
const header = "%%MatrixMarket matrix coordinate real symmetric\n"

func TestMatricesThatDoNotSuitAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		header + "2 2 2\n1 1 1\n2 1 5\n":         "not positive definite: the number in row 2 of the diagonal is 0",
		header + "2 2 3\n1 1 1\n2 1 5\n2 2 -1\n": "not positive definite: the number in row 2 of the diagonal is -1",
		"%%MatrixMarket matrix coordinate integer general\n2 2 3\n1 1 1\n2 2 1\n1 2 5\n": "not symmetric: 5 in row 1, " +
			"column 2, and 0 in row 2, column 1",
	} {
		c, err := parseMatrix(strings.NewReader(text))
		require.NoError(t, err, text)
		require.ErrorContains(t, c.compress().suits(), want)
	}
}

func TestNumbersOfOnePlaceAreAddedUp(t *testing.T) {
	c, err := parseMatrix(strings.NewReader("%%matrixmarket MATRIX Coordinate Pattern General\n%\n\n1 1 2\n1 1\n% no\n1 1\n"))
	require.NoError(t, err)
	require.Equal(t, csr{[]int{0, 1}, []int{0}, []float64{2}}, c.compress())
}

func TestBadMatricesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":        `line 1: not a Matrix Market file: it begins with "%%MatrixMarket matrix"`,
		"1 1 1\n": `line 1: "1 1 1": a Matrix Market file begins with`,
		"%%MatrixMarket matrix array real general\n":           `line 1: a matrix in "array" format`,
		"%%MatrixMarket matrix coordinate complex symmetric\n": `line 1: numbers of the kind "complex"`,
		"%%MatrixMarket matrix coordinate real hermitian\n":    `line 1: the matrix is "hermitian"`,
		header:                                                     "line 2: the file ends before the sizes",
		header + "% no\n2 2\n":                                     "line 3: 2 fields; the sizes are rows, columns and numbers",
		header + "2 3 2\n":                                         "line 2: 2 rows and 3 columns: must be as many",
		header + "0 0 0\n":                                         "line 2: 0 rows and 0 columns",
		header + "-1 2 2\n":                                        `line 2: "-1" rows: must be a number from 0 to 2147483648`,
		header + "2 2 x\n":                                         `line 2: "x" numbers: must be`,
		header + "2000000000 2000000000 3\n":                       "line 2: 3 numbers in 2000000000 rows: the matrix is singular",
		header + "2 2 2\n1 1 1\n":                                  "line 4: the file ends before all its 2 numbers",
		header + "2 2 2\n1 1 1\n2 2\n":                             "line 4: 2 fields; a row, a column and the number are 3",
		header + "2 2 2\n1 1 1\n3 2 1\n":                           `line 4: row "3": must be a number from 1 to 2`,
		header + "2 2 2\n1 1 1\n2 0 1\n":                           `line 4: column "0": must be a number from 1 to 2`,
		header + "2 2 2\n1 1 1\n2 2 inf\n":                         `line 4: "inf": must be a number from`,
		header + "2 2 2\n1 1 1\n1 2 1\n":                           "line 4: row 1, column 2 is above the diagonal",
		header + "1 1 1\n1 1 1\n\n1 1 1\n":                         "line 5: more than the 1 numbers that the sizes announce",
		header + "1 1 1\n1 1 1\n" + strings.Repeat("x", maxLine+1): "line 4: longer than 65536 bytes",
	} {
		_, err := parseMatrix(strings.NewReader(text))
		require.ErrorContains(t, err, want, "%.80s", text)
	}
}

func TestBadVectorsAreRefused(t *testing.T) {
	const header = "%%MatrixMarket matrix array real general\n"
	for text, want := range map[string]string{
		"%%MatrixMarket matrix coordinate real general\n": `line 1: a matrix in format "coordinate real general"`,
		header + "2 2\n":       `line 2: "2 2": the sizes of a vector are its rows, and 1`,
		header + "2 1\n1\n":    "line 4: the file ends before all its 2 numbers",
		header + "1 1\n1 2\n":  "line 3: 2 fields; a vector has one number a line",
		header + "1 1\nNaN\n":  `line 3: "NaN": must be a number`,
		header + "1 1\n1\n2\n": "line 4: more than the 1 numbers",
	} {
		_, err := parseVector(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

// A matrix that was read can be worked with.
func FuzzParseMatrix(f *testing.F) {
	f.Add(header + "2 2 3\n1 1 4\n2 1 -1\n2 2 4\n")
	f.Add("%%MatrixMarket matrix coordinate pattern general\n% c\n\n3 3 3\n1 1\n2 2\n3 3\n")
	f.Add(header + "2147483648 2147483648 9000000000\n1 1 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseMatrix(strings.NewReader(text))
		if err != nil {
			return
		}
		a := c.compress()
		require.Equal(t, c.rows, a.rows())
		require.LessOrEqual(t, c.rows, len(text))
		_ = a.suits()
		a.times(make([]float64, c.rows))
	})
}

// What is written is what was read.
func FuzzParseVector(f *testing.F) {
	f.Add("%%MatrixMarket matrix array real general\n2 1\n1.5\n-1e-300\n")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseVector(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := parseVector(bytes.NewReader(appendNumbers(appendHeader(nil, len(v)), v)))
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}

// Without a file the program solves for the matrix in it.
func TestWithoutAFile(t *testing.T) {
	stdout, stderr, err := exampletest.Launch(t, 3, t.TempDir())
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "laplace.mtx: 100 rows, ")
}

func TestBadInputIsRefused(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"a b":              "cg: 2 matrices",
		"-x a":             "cg: flag provided but not defined: -x",
		"-iterations -1 a": "cg: -iterations -1: must be 0 or more",
		"-tolerance 0 a":   "cg: -tolerance 0: must be from 1e-14 to 1",
		"-tolerance NaN a": "cg: -tolerance NaN: must be",
		"none":             "cg: open none: no such file",
		"/dev/null":        "cg: /dev/null: line 1: not a Matrix Market file",
		"/dev/zero":        "cg: /dev/zero: line 1: not a Matrix Market file",
	})
	file, err := filepath.Abs("testdata/laplace.mtx")
	require.NoError(t, err)
	exampletest.Refused(t, []string{"-rhs", "none", file}, "cg: -rhs: open none: no such file")
	exampletest.Refused(t, []string{"-rhs", file, file}, "cg: -rhs: "+file+": line 1: a matrix in format")
	exampletest.Refused(t, []string{"-output", "none/x", file}, "cg: -output: file: open none/x: no such file")
	exampletest.Refused(t, []string{"-iterations", "2", file}, "cg: rank 0: no solution in 2 iterations: the residual is ")
}

// An indefinite matrix with a positive diagonal is found out by the iteration, at all ranks alike.
func TestAnIndefiniteMatrixEndsTheJob(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.mtx")
	require.NoError(t, os.WriteFile(file, []byte(header+"2 2 3\n1 1 1\n2 1 -5\n2 2 1\n"), 0o666))
	exampletest.Refused(t, []string{file}, "cg: rank 0: the matrix is not positive definite: there is a d with dᵀAd = ")
	exampletest.Ends(t, 2, file)
}

func TestHelp(t *testing.T) { exampletest.Helps(t, "-tolerance float") }
