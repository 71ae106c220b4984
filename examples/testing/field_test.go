package field_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"example.org/testing"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// sizes are worlds of one rank, of few, of odd numbers, and of no power of two.
var sizes = []int{1, 2, 3, 4, 7}

// on runs a test on a field of n numbers in worlds of all sizes.
func on(t *testing.T, n int, test func(t testing.TB, world *mpi.Comm, f *field.Field)) {
	mpitest.Sizes(t, sizes, func(ctx context.Context, world *mpi.Comm) error {
		f, err := field.New(world, n, func(i int) float64 { return float64(i * i % 17) })
		if err == nil {
			test(mpitest.T(ctx), world, f)
		}
		return err
	})
}

func numbers(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i * i % 17)
	}
	return v
}

// gathered compares a field with the vector that it should be.
func gathered(t testing.TB, world *mpi.Comm, f *field.Field, want []float64) {
	t.Helper()
	for root := range world.Size() {
		got, err := f.Gather(root)
		if err != nil {
			t.Fatal(err)
		}
		if world.Rank() == root && !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func TestGather(t *testing.T) {
	for _, n := range []int{0, 1, 5, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			on(t, n, func(t testing.TB, world *mpi.Comm, f *field.Field) { gathered(t, world, f, numbers(n)) })
		})
	}
}

func TestSum(t *testing.T) {
	on(t, 100, func(t testing.TB, _ *mpi.Comm, f *field.Field) {
		want := 0.0
		for _, v := range numbers(100) {
			want += v
		}
		if got, err := f.Sum(); err != nil || got != want {
			t.Fatal(got, err)
		}
	})
}

func TestSum_OfNothing(t *testing.T) {
	on(t, 0, func(t testing.TB, _ *mpi.Comm, f *field.Field) {
		if got, err := f.Sum(); err != nil || got != 0 {
			t.Fatal(got, err)
		}
	})
}

func TestAt(t *testing.T) {
	on(t, 20, func(t testing.TB, _ *mpi.Comm, f *field.Field) {
		for i, want := range numbers(20) {
			if got, err := f.At(i); err != nil || got != want {
				t.Fatal(i, got, err)
			}
		}
	})
}

func TestAt_Outside(t *testing.T) {
	on(t, 20, func(t testing.TB, _ *mpi.Comm, f *field.Field) {
		for _, i := range []int{-1, 20} {
			if _, err := f.At(i); err == nil {
				t.Fatal("no error")
			}
		}
	})
}

func TestAccumulate(t *testing.T) {
	for _, n := range []int{0, 3, 50} { // 3: some ranks have nothing
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			on(t, n, func(t testing.TB, world *mpi.Comm, f *field.Field) {
				want := numbers(n)
				for i := 1; i < n; i++ {
					want[i] += want[i-1]
				}
				if err := f.Accumulate(); err != nil {
					t.Fatal(err)
				}
				gathered(t, world, f, want)
			})
		})
	}
}

func TestSmooth(t *testing.T) {
	for _, n := range []int{7, 50} { // 7: a rank may have one number
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			on(t, n, func(t testing.TB, world *mpi.Comm, f *field.Field) {
				old, want := numbers(n), make([]float64, n)
				for i := range want {
					want[i] = (old[(i+n-1)%n] + old[i] + old[(i+1)%n]) / 3
				}
				if err := f.Smooth(); err != nil {
					t.Fatal(err)
				}
				gathered(t, world, f, want)
			})
		})
	}
}

func TestSmooth_TooShort(t *testing.T) {
	mpitest.Run(t, 4, func(_ context.Context, world *mpi.Comm) error {
		f, err := field.New(world, 3, func(int) float64 { return 0 })
		if err != nil {
			return err
		}
		if err := f.Smooth(); err == nil {
			return fmt.Errorf("no error")
		}
		return nil
	})
}

// Smoothing leaves the sum as it is, but for rounding.
func TestSmooth_KeepsTheSum(t *testing.T) {
	on(t, 60, func(t testing.TB, _ *mpi.Comm, f *field.Field) {
		before, err := f.Sum()
		for range 10 {
			if err == nil {
				err = f.Smooth()
			}
		}
		after, err2 := f.Sum()
		if err != nil || err2 != nil || after-before > 1e-9 || before-after > 1e-9 {
			t.Fatal(before, after, err, err2)
		}
	})
}

// Two fields on communicators of their own do not disturb each other.
func TestTwoFields(t *testing.T) {
	seed := rand.Uint64()
	mpitest.Run(t, 4, func(_ context.Context, world *mpi.Comm) error {
		half, err := world.Split(world.Rank()%2, 0)
		if err != nil {
			return err
		}
		f, err := field.New(half, 10, func(i int) float64 { return float64(i + world.Rank()%2) })
		if err != nil {
			return err
		}
		sum, err := f.Sum()
		if want := float64(45 + 10*(world.Rank()%2)); err == nil && sum != want {
			err = fmt.Errorf("%v, not %v", sum, want)
		}
		if err != nil {
			return err
		}
		return half.Free()
	}, mpitest.Seed(seed))
}
