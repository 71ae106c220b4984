package npy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

func TestMain(m *testing.M) {
	launchertest.Play()
	goleak.VerifyTestMain(m)
}

func body(name string, run func(c *mpi.Comm, dir string) error) string {
	return launchertest.Body(name, func() error {
		return mpi.Run(context.Background(), func(_ context.Context, c *mpi.Comm) error {
			return run(c, os.Getenv("NPY_DIR"))
		})
	})
}

func ranks(t *testing.T, n int, name, dir string) {
	t.Helper()
	r := launchertest.Run(t, launchertest.Ranks(n, name, "NPY_DIR="+dir))
	require.NoError(t, r.Failure, "%s%s", r.Out, r.Err)
}

// python runs a program, and skips the test where NumPy is not installed.
func python(t *testing.T, dir, program string) {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} { // the second has Debian's packages
		if exec.Command(name, "-c", "import numpy").Run() != nil {
			continue
		}
		c := exec.CommandContext(t.Context(), name, "-c", "import numpy as np\n"+program)
		c.Dir = dir
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	t.Skip("no python3 with NumPy (Debian: python3-numpy)")
}

// element gives each element of an array of shape 5 × 4 × 3 its number, in the order of rows.
func element(i, j, k int) int { return (i*4+j)*3 + k }

// block is a rank's part of the second dimension, and the values there.
func block[T any](c *mpi.Comm, value func(int) T) (start, size []int, v []T) {
	from, end := 4*c.Rank()/c.Size(), 4*(c.Rank()+1)/c.Size()
	for i := range 5 {
		for j := from; j < end; j++ {
			for k := range 3 {
				v = append(v, value(element(i, j, k)))
			}
		}
	}
	return []int{0, from, 0}, []int{5, end - from, 3}, v
}

func write[T comparable](c *mpi.Comm, dir, name string, order Order, value func(int) T) error {
	a, err := Create[T](c, filepath.Join(dir, name), order, 5, 4, 3)
	if err != nil {
		return err
	}
	start, size, v := block(c, value)
	return errors.Join(a.Write(start, size, mpi.Whole(v)), a.Close())
}

func read[T comparable](c *mpi.Comm, dir, name string, order Order, value func(int) T) error {
	a, err := Open[T](c, filepath.Join(dir, name))
	if err != nil {
		return err
	}
	start, size, want := block(c, value)
	got := make([]T, len(want))
	if err := a.Read(start, size, mpi.Whole(got)); err != nil {
		return err
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: %v, not %v", name, got, want)
		}
	}
	if fmt.Sprint(a.Shape()) != "[5 4 3]" || a.Order() != order {
		return fmt.Errorf("%s: shape %v, %v", name, a.Shape(), a.Order())
	}
	return a.Close()
}

func number[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64](i int) T {
	return T(i)
}

// each does the same for each type, which Python knows by a name.
func each(c *mpi.Comm, dir string, do func(name string, order Order) []error) error {
	var errs []error
	for _, order := range []Order{Rows, Columns} {
		name := "C"
		if order == Columns {
			name = "F"
		}
		errs = append(errs, do(name, order)...)
	}
	return errors.Join(errs...)
}

var writes = body("writes", func(c *mpi.Comm, dir string) error {
	return each(c, dir, func(name string, order Order) []error {
		return []error{
			write(c, dir, "int8"+name, order, number[int8]),
			write(c, dir, "int16"+name, order, number[int16]),
			write(c, dir, "int32"+name, order, number[int32]),
			write(c, dir, "int64"+name, order, number[int64]),
			write(c, dir, "uint8"+name, order, number[uint8]),
			write(c, dir, "uint16"+name, order, number[uint16]),
			write(c, dir, "uint32"+name, order, number[uint32]),
			write(c, dir, "uint64"+name, order, number[uint64]),
			write(c, dir, "float32"+name, order, number[float32]),
			write(c, dir, "float64"+name, order, number[float64]),
			write(c, dir, "bool"+name, order, func(i int) bool { return i%3 == 0 }),
			write(c, dir, "complex64"+name, order, func(i int) complex64 { return complex(float32(i), 1) }),
			write(c, dir, "complex128"+name, order, func(i int) complex128 { return complex(float64(i), 1) }),
		}
	})
})

var reads = body("reads", func(c *mpi.Comm, dir string) error {
	err := each(c, dir, func(name string, order Order) []error {
		var errs []error
		for _, end := range []string{"<", ">"} {
			name := name + end
			errs = append(errs,
				read(c, dir, "int8"+name, order, number[int8]),
				read(c, dir, "int16"+name, order, number[int16]),
				read(c, dir, "int32"+name, order, number[int32]),
				read(c, dir, "int64"+name, order, number[int64]),
				read(c, dir, "uint8"+name, order, number[uint8]),
				read(c, dir, "uint16"+name, order, number[uint16]),
				read(c, dir, "uint32"+name, order, number[uint32]),
				read(c, dir, "uint64"+name, order, number[uint64]),
				read(c, dir, "float32"+name, order, number[float32]),
				read(c, dir, "float64"+name, order, number[float64]),
				read(c, dir, "bool"+name, order, func(i int) bool { return i%3 == 0 }),
				read(c, dir, "complex64"+name, order, func(i int) complex64 { return complex(float32(i), 1) }),
				read(c, dir, "complex128"+name, order, func(i int) complex128 { return complex(float64(i), 1) }))
		}
		return errs
	})
	// What is no array of these elements is the same error at all ranks.
	for _, try := range []struct {
		name string
		kind error
	}{{"fields", ErrFormat}, {"objects", ErrFormat}, {"text", ErrFormat}, {"short", io.ErrUnexpectedEOF},
		{"int32C<", mpi.ErrType}, {"missing", os.ErrNotExist}} {
		if a, wrong := Open[float64](c, filepath.Join(dir, try.name)); a != nil || !errors.Is(wrong, try.kind) {
			return fmt.Errorf("%s: %w", try.name, wrong)
		}
	}
	return errors.Join(err, read(c, dir, "version2", Rows, number[float64]))
})

const types = `types = ['int8','int16','int32','int64','uint8','uint16','uint32','uint64','float32','float64','bool','complex64','complex128']
def want(t):
    a = np.arange(60).reshape(5, 4, 3)
    return a % 3 == 0 if t == 'bool' else a + 1j if t[0] == 'c' else a
`

func TestPythonOpensWhatRanksWrite(t *testing.T) {
	for _, n := range []int{1, 3} {
		dir := t.TempDir()
		ranks(t, n, writes, dir)
		python(t, dir, types+`
for t in types:
    for order in 'CF':
        a = np.load(t + order)
        assert a.dtype == t and a.shape == (5, 4, 3) and (a == want(t)).all(), (t, order, a)
        assert a.flags.c_contiguous == (order == 'C'), (t, order)
`)
	}
}

func TestRanksOpenWhatPythonWrites(t *testing.T) {
	dir := t.TempDir()
	python(t, dir, types+`
def save(name, a, **args):
    with open(name, 'wb') as f: np.lib.format.write_array(f, a, **args)
for t in types:
    for order in 'CF':
        for end in '<>':
            save(t + order + end, np.array(want(t), dtype=np.dtype(t).newbyteorder(end), order=order))
save('version2', want('float64').astype('float64'), version=(2, 0))
save('fields', np.zeros(3, dtype=[('a', 'f8'), ('b', 'i4')]))
save('objects', np.array([None, 1], dtype=object))
save('short', np.zeros(100))
open('short', 'r+b').truncate(500)
open('text', 'w').write('not an array')
`)
	for _, n := range []int{1, 4} {
		ranks(t, n, reads, dir)
	}
}

var unfinished = body("unfinished", func(c *mpi.Comm, dir string) error {
	a, err := Create[int64](c, filepath.Join(dir, "a"), Rows, 4)
	if err != nil {
		return err
	}
	if err := a.Write([]int{0}, []int{1}, mpi.Whole([]int64{1})); err == nil {
		return errors.New("ranks write the same element")
	}
	return a.Close()
})

// A file of which a Write has failed, or that was not closed, is no array.
func TestAnUnfinishedFileIsNoArray(t *testing.T) {
	dir := t.TempDir()
	ranks(t, 2, unfinished, dir)
	b, err := os.ReadFile(filepath.Join(dir, "a"))
	require.NoError(t, err)
	_, _, err = ReadHeader(bytes.NewReader(b))
	require.ErrorIs(t, err, ErrFormat)
}

func TestHeaders(t *testing.T) {
	for text, want := range map[string]Header{
		"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }":       {"<f8", false, []int{3, 4}},
		"{'shape': (), 'fortran_order': True, \"descr\": \"|b1\"}   \n":     {"|b1", true, []int{}},
		"{ 'descr':'>c16','fortran_order':False , 'shape':( 10L , ) , } \n": {">c16", false, []int{10}},
	} {
		h, err := parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, h)
	}
	for text, word := range map[string]string{
		"":  "the header",
		"{": "the header",
		"{'descr': '<f8', 'fortran_order': False}":                                     "the header",
		"{'descr': '<f8', 'fortran_order': 0, 'shape': (3,)}":                          "the header",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), 'descr': '<f8'}":      "the header",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}":                     "the header",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}":   "the header",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (3,)} and":                  "the header",
		"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}":             "fields",
		"{'descr': '<f16', 'fortran_order': False, 'shape': (3,)}":                     "type \"<f16\"",
		"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}":                       "type \"|O\"",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296,)}": "too large",
	} {
		b := append([]byte(magic), 1, 0, byte(len(text)), 0)
		_, _, err := ReadHeader(strings.NewReader(string(b) + text))
		require.ErrorIs(t, err, ErrFormat, text)
		require.ErrorContains(t, err, word, text)
	}
}

func FuzzReadHeader(f *testing.F) {
	for _, h := range []Header{{"<f8", false, []int{3, 4}}, {"|b1", true, []int{}}, {">c8", false, []int{7}}} {
		b, err := h.Append(nil)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ReadHeader(bytes.NewReader(b))
		if err != nil {
			return
		}
		if n > int64(len(b)) {
			t.Fatal("longer than the file")
		}
		again, err := h.Append(nil)
		require.NoError(t, err)
		back, _, err := ReadHeader(bytes.NewReader(again))
		require.NoError(t, err)
		require.Equal(t, h, back)
	})
}
