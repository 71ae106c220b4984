package mpi

import (
	"fmt"
	"slices"
)

// DimsCreate fills in the zeros of dims so that the product of all dimensions is n (MPI 4.1, 8.5.1). The
// values that it fills in are as equal as possible, and in non-increasing order. It is a local call.
func DimsCreate(n int, dims []int) error {
	rest, open := n, 0
	for _, d := range dims {
		switch {
		case d < 0:
			return asError("DimsCreate", fmt.Errorf("%w: a dimension of size %d", ErrArg, d))
		case d == 0:
			open++
		case rest%d != 0 || rest == 0:
			return asError("DimsCreate", errProduct(n, dims))
		default:
			rest /= d
		}
	}
	if n < 1 || open == 0 && rest != 1 {
		return asError("DimsCreate", errProduct(n, dims))
	}
	if open == 0 {
		return nil
	}
	factors := balanced(rest, open, rest)
	for i := range dims {
		if dims[i] == 0 {
			dims[i], factors = factors[0], factors[1:]
		}
	}
	return nil
}

// balanced writes n as a product of k factors, none above the bound and none above the one before it, with
// the least difference between the first and the last. It returns nil if there is none.
func balanced(n, k, bound int) []int {
	if k == 1 {
		if n > bound {
			return nil
		}
		return []int{n}
	}
	var best []int
	for _, f := range slices.Backward(divisors(n)) {
		if f > bound {
			continue
		}
		if pow(f, k) < n {
			break // all that follow are too small
		}
		rest := balanced(n/f, k-1, f)
		if rest == nil {
			continue
		}
		if best == nil || f-rest[k-2] < best[0]-best[k-1] {
			best = append([]int{f}, rest...)
		}
	}
	return best
}

// divisors lists the divisors of n in ascending order.
func divisors(n int) []int {
	var low, high []int
	for d := 1; d <= n/d; d++ {
		if n%d == 0 {
			low = append(low, d)
			if d != n/d {
				high = append(high, n/d)
			}
		}
	}
	slices.Reverse(high)
	return append(low, high...)
}

// pow is f to the k, or a number above every job's size.
func pow(f, k int) int {
	p := 1
	for range k {
		if p *= f; p > 1<<40 {
			return p
		}
	}
	return p
}

func errProduct(n int, dims []int) error {
	return fmt.Errorf("%w: the product of the dimensions %v cannot be %d", ErrArg, dims, n)
}
