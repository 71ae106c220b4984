package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/endpointtest"
)

func TestMain(m *testing.M) {
	launchertest.Play()
	goleak.VerifyTestMain(m)
}

// body registers a program that has a folder, and hosts of the test's if it wants several.
func body(name string, run func(c *mpi.Comm, dir string) error) string {
	return launchertest.Body(name, func() error {
		return mpi.Run(context.Background(), endpointtest.Body(func(_ context.Context, c *mpi.Comm) error {
			if hosts, _ := strconv.Atoi(os.Getenv("FILE_HOSTS")); hosts > 1 {
				hostOf = func(c *mpi.Comm) (int, error) { return c.Rank() % hosts, nil }
			}
			return run(c, os.Getenv("FILE_DIR"))
		}))
	})
}

// ranks runs a body that must succeed, and returns what it prints.
func ranks(t *testing.T, n int, name, dir string, env ...string) string {
	t.Helper()
	r := launchertest.Run(t, launchertest.Ranks(n, name, append(env, "FILE_DIR="+dir)...))
	require.NoError(t, r.Failure, "%s%s", r.Out, r.Err)
	return r.Out
}

// open opens a file whose blocks and windows are so small that a few elements need many.
func open(c *mpi.Comm, name string) (*File, error) {
	f, err := Open(c, name, os.O_RDWR|os.O_CREATE, 0o666)
	if err == nil {
		f.block, f.window = 32, 96
	}
	return f, err
}

type particle struct {
	Place [3]float32
	Kind  uint16
	Mass  float64
}

// content gives each element of a file a value of its own.
type content[T comparable] func(i int) T

// A share is a rank's elements of a file of n, by number, and where they are.
type share struct {
	list  []int
	where Place
}

// deal deals out elements to ranks, in a way that depends on the seed. Together they have the same elements on
// any number of ranks, each once.
func deal(seed uint64, n, rank, size int) share {
	r := rand.New(rand.NewPCG(seed, 7))
	var s share
	switch way := r.IntN(6); way {
	case 0: // long parts
		first, count := n*rank/size, n*(rank+1)/size-n*rank/size
		for i := range count {
			s.list = append(s.list, first+i)
		}
		s.where = Range(first, count)
	case 1: // cyclic, of blocks of 3; what is left over is rank 0's
		rounds := n / (3 * size)
		for i := range rounds {
			for j := range 3 {
				s.list = append(s.list, (i*size+rank)*3+j)
			}
		}
		s.where = Strided(3*rank, rounds, 3, 3*size)
		if rest := rounds * 3 * size; rank == 0 && rest < n {
			at, length := []int{}, []int{}
			for i := range rounds {
				at, length = append(at, i*size*3), append(length, 3)
			}
			for i := rest; i < n; i++ {
				s.list = append(s.list, i)
			}
			s.where = Indexed(append(at, rest), append(length, n-rest))
		}
	case 2, 3: // columns of a matrix, by rows or by columns in the file
		columns := 8
		rows := n / columns
		first, count := columns*rank/size, columns*(rank+1)/size-columns*rank/size
		last := 0
		if rank == size-1 {
			last = n - rows*columns
		}
		for i := range rows {
			for j := range count {
				if way == 2 {
					s.list = append(s.list, i*columns+first+j)
				} else {
					s.list = append(s.list, (first+j)*rows+i)
				}
			}
		}
		s.where = Sub([]int{rows, columns}, []int{0, first}, []int{rows, count})
		if way == 3 {
			s.where = SubColumns([]int{rows, columns}, []int{0, first}, []int{rows, count})
		}
		if last > 0 {
			for i := n - last; i < n; i++ {
				s.list = append(s.list, i)
			}
			s.where = Indexed(s.list, nil)
		}
	default: // any, in any order
		for i, e := range r.Perm(n) {
			if i%size == rank {
				s.list = append(s.list, e)
			}
		}
		s.where = Indexed(s.list, nil)
	}
	return s
}

// view is memory for n elements, in a way that depends on the seed.
func view[T any](seed uint64, n int) mpi.View[T] {
	r := rand.New(rand.NewPCG(seed, 8))
	switch r.IntN(3) {
	case 0:
		return mpi.Strided(make([]T, 3*n), n, 1, 3)
	case 1:
		return mpi.Indexed(make([]T, 2*n), r.Perm(2 * n)[:n], nil)
	}
	return mpi.Whole(make([]T, n))
}

// move writes a file, reads it in another way, and compares.
func move[T comparable](c *mpi.Comm, name string, seed uint64, at content[T]) error {
	r := rand.New(rand.NewPCG(seed, 9))
	n, offset, big := r.IntN(200), int64(r.IntN(50)), r.IntN(3) == 0
	f, err := open(c, name)
	if err != nil {
		return err
	}
	if r.IntN(2) == 0 {
		if err := f.SetAggregators(1 + int(seed)%c.Size()); err != nil {
			return err
		}
	}
	place := func(p Place) Place {
		if p = p.At(offset); big {
			p = p.BigEndian()
		}
		return p
	}
	mine := deal(seed, n, c.Rank(), c.Size())
	values := make([]T, len(mine.list))
	for i, e := range mine.list {
		values[i] = at(e)
	}
	v := view[T](seed+uint64(c.Rank()), len(mine.list))
	v.Unpack(values)
	if err := WriteAll(f, place(mine.where), v); err != nil {
		return err
	}
	for way := range uint64(3) {
		mine := deal(seed+7*way, n, c.Rank(), c.Size())
		v := view[T](seed+way+uint64(c.Rank()), len(mine.list))
		read, err := ReadAll(f, place(mine.where), v)
		if err != nil {
			return err
		}
		got := make([]T, v.Len())
		v.Pack(got)
		for i, e := range mine.list {
			if got[i] != at(e) {
				return fmt.Errorf("seed %d, way %d: element %d is %v, not %v", seed, way, e, got[i], at(e))
			}
		}
		if read != len(got) {
			return fmt.Errorf("seed %d: %d elements read of %d", seed, read, len(got))
		}
	}
	return f.Close()
}

// seeds is how many random files each number of ranks writes. With WEFT_TEST_FILES=1200, the numbers of ranks
// from 1 to 9, which are tried only then, make more than 10,000 together.
func seeds() int {
	if n, err := strconv.Atoi(os.Getenv("WEFT_TEST_FILES")); err == nil {
		return n
	}
	return 10
}

var patterns = body("patterns", func(c *mpi.Comm, dir string) error {
	for seed := range uint64(seeds()) {
		name := filepath.Join(dir, fmt.Sprint(seed))
		var err error
		switch seed % 5 {
		case 0:
			err = move(c, name, seed, func(i int) uint8 { return uint8(i*7 + 1) })
		case 1:
			err = move(c, name, seed, func(i int) int32 { return int32(i*65537 + 3) })
		case 2:
			err = move(c, name, seed, func(i int) float64 { return float64(i)/3 + 1 })
		case 3:
			err = move(c, name, seed, func(i int) complex64 { return complex(float32(i), -1) })
		default:
			err = move(c, name, seed, func(i int) particle {
				return particle{[3]float32{float32(i), 2, 3}, uint16(i), float64(i) / 7}
			})
		}
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return longParts(c, filepath.Join(dir, fmt.Sprint(seeds())))
})

// longParts has each rank write and read a part that is long enough to be its own, with elements that blocks
// cut, from memory and through a view, and then a part that begins elsewhere.
func longParts(c *mpi.Comm, name string) error {
	const n = 9 * 10_000
	f, err := Open(c, name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	f.window = 64 << 10
	for turn := range 4 {
		first, end := n*c.Rank()/c.Size(), n*(c.Rank()+1)/c.Size()
		where := func() Place { return Range(first, end-first).At(13) }
		v := mpi.Whole(make([]int64, end-first))
		if turn%2 == 1 {
			v = mpi.Strided(make([]int64, 2*(end-first)), end-first, 1, 2)
		}
		values := make([]int64, end-first)
		for i := range values {
			values[i] = int64(first + i + turn)
		}
		v.Unpack(values)
		if err := WriteAll(f, where(), v); err != nil {
			return err
		}
		if c.Rank() > 0 {
			first -= 1000
		}
		if c.Rank() < c.Size()-1 {
			end -= 1000
		}
		v = mpi.Whole(make([]int64, end-first))
		if turn >= 2 {
			v = mpi.Strided(make([]int64, 2*(end-first)), end-first, 1, 2)
		}
		read, err := ReadAll(f, where(), v)
		if err != nil {
			return err
		}
		if read != end-first {
			return fmt.Errorf("%d elements read, not %d", read, end-first)
		}
		got := make([]int64, end-first)
		v.Pack(got)
		for i := range got {
			if got[i] != int64(first+i+turn) {
				return fmt.Errorf("turn %d: element %d is %d", turn, first+i, got[i])
			}
		}
	}
	return f.Close()
}

// A file does not depend on how many ranks write it, on how many hosts, or who aggregates.
func TestAFileIsTheSameOnAnyNumberOfRanks(t *testing.T) {
	var want [sha256.Size]byte
	numbers := []int{1, 2, 7}
	if os.Getenv("WEFT_TEST_FILES") != "" {
		numbers = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	}
	for _, n := range numbers {
		dir := t.TempDir()
		ranks(t, n, patterns, dir, fmt.Sprint("FILE_HOSTS=", (n+2)/3))
		all := sha256.New()
		for seed := range seeds() + 1 {
			if seed%5 == 4 {
				continue // whose elements have padding
			}
			b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(seed)))
			require.NoError(t, err)
			fmt.Fprintf(all, "%d: ", len(b))
			all.Write(b)
		}
		got := [sha256.Size]byte(all.Sum(nil))
		if n == 1 {
			want = got
		}
		require.Equal(t, want, got, "%d ranks", n)
	}
}

var underWay = body("under way", func(c *mpi.Comm, dir string) error {
	f, err := open(c, filepath.Join(dir, "f"))
	if err != nil {
		return err
	}
	const n = 100
	where := Strided(c.Rank(), n, 1, c.Size())
	var calls []*Request
	begin := func(r *Request, err error) error {
		calls = append(calls, r)
		return err
	}
	var got [3][]int32
	for turn := range got {
		got[turn] = make([]int32, n)
		err := errors.Join(
			begin(IwriteAll(f, where, mpi.Whole(numbersFrom(1000*turn+c.Rank(), n)))),
			begin(IreadAll(f, where, mpi.Whole(got[turn]))))
		if err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil { // waits for them
		return err
	}
	for i, r := range calls {
		if elements, done, err := r.Test(); elements != n || !done || err != nil {
			return fmt.Errorf("call %d: %d elements, complete: %v, %w", i, elements, done, err)
		}
	}
	for turn := range got {
		if want := numbersFrom(1000*turn+c.Rank(), n); !slices.Equal(got[turn], want) {
			return fmt.Errorf("turn %d: %v, not %v", turn, got[turn], want)
		}
	}
	_, err = IreadAll(f, where, mpi.Whole(got[0]))
	if !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("after Close: %w", err)
	}
	return nil
})

// Calls under way take place in the order in which they began, and Close waits for them.
func TestCallsUnderWay(t *testing.T) {
	for _, n := range []int{1, 4} {
		ranks(t, n, underWay, t.TempDir(), "FILE_HOSTS=2")
	}
}
