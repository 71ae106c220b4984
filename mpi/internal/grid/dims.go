// Package grid arranges ranks on grids and graphs: the sizes of dimensions, the coordinates of ranks, and
// orders that keep neighbors on one host. It does no I/O.
package grid

import (
	"fmt"
	"slices"
)

// Fill fills in the zeros of dims so that the product of all dimensions is n, as DimsCreate of package mpi
// does.
func Fill(n int, dims []int) error {
	rest, open := n, 0
	for _, d := range dims {
		switch {
		case d < 0:
			return fmt.Errorf("a dimension of size %d", d)
		case d == 0:
			open++
		case rest%d != 0 || rest == 0:
			return errProduct(n, dims)
		default:
			rest /= d
		}
	}
	if n < 1 || open == 0 && rest != 1 {
		return errProduct(n, dims)
	}
	if open == 0 {
		return nil
	}
	factors, err := balanced(rest, open)
	if err != nil {
		return err
	}
	for i := range dims {
		if dims[i] == 0 {
			dims[i], factors = factors[0], factors[1:]
		}
	}
	return nil
}

func errProduct(n int, dims []int) error {
	return fmt.Errorf("the product of the dimensions %v cannot be %d", dims, n)
}

// balanced writes n as a product of k factors in non-increasing order, with the least difference between the
// first and the last.
func balanced(n, k int) ([]int, error) {
	primes, err := primeFactors(n)
	if err != nil {
		return nil, err
	}
	s := factorization{primes: primes, divisors: divisors(n, primes)}
	var best []int
	for _, first := range s.from(s.least(n, k)) {
		lowest := 1
		if best != nil {
			// the last factor is at most the k-th root of n
			if lowest = first - (best[0] - best[k-1]) + 1; lowest > 1 && !withinPower(lowest, k, n) {
				break
			}
		}
		if rest := s.fit(n/first, k-1, first, max(lowest, 1)); rest != nil {
			best = append([]int{first}, rest...)
		}
	}
	return best, nil
}

// factorization searches the ways to write a number as a product.
type factorization struct {
	primes   []int // that divide the number, ascending
	divisors []int // ascending
}

// fit writes n as a product of k factors in non-increasing order, none above highest and none below lowest,
// with the largest possible last one. It returns nil if there is none.
func (s *factorization) fit(n, k, highest, lowest int) (best []int) {
	if k == 0 {
		if n == 1 {
			return []int{}
		}
		return nil
	}
	if k == 1 {
		if n <= highest && n >= lowest {
			return []int{n}
		}
		return nil
	}
	for _, f := range s.from(s.least(n, k)) {
		if f > highest || !withinPower(lowest, k-1, n/f) {
			break
		}
		if n%f != 0 {
			continue
		}
		if rest := s.fit(n/f, k-1, f, lowest); rest != nil {
			best = append([]int{f}, rest...)
			lowest = best[k-1] + 1
		}
	}
	return best
}

// least bounds the first of k factors of n from below: none of the others is larger, and each prime divides
// one of them.
func (s *factorization) least(n, k int) int {
	prime := 1
	for _, p := range s.primes {
		if n%p == 0 {
			prime = p
		}
	}
	root, _ := slices.BinarySearchFunc(s.divisors, n, func(f, n int) int {
		if f < n && withinPower(f, k, n-1) { // f to the k is less than n
			return -1
		}
		return 1
	})
	return max(prime, s.divisors[min(root, len(s.divisors)-1)])
}

// from lists the divisors from f on.
func (s *factorization) from(f int) []int {
	at, _ := slices.BinarySearch(s.divisors, f)
	return s.divisors[at:]
}

// withinPower reports whether f to the k is at most n.
func withinPower(f, k, n int) bool {
	if f <= 1 {
		return f <= n
	}
	for range k {
		if n /= f; n == 0 {
			return false
		}
	}
	return true
}

// maxTrialDivisor bounds the time of primeFactors. Every number up to its square can be factorized, and
// larger ones with at most one prime factor above it.
const maxTrialDivisor = 1 << 22

// primeFactors lists the primes that divide n, in ascending order.
func primeFactors(n int) (primes []int, err error) {
	rest := n
	for p := 2; p <= rest/p; p += 1 + p&1 {
		if p > maxTrialDivisor {
			return nil, fmt.Errorf("%d has prime factors too large to find", n)
		}
		if rest%p == 0 {
			primes = append(primes, p)
		}
		for rest%p == 0 {
			rest /= p
		}
	}
	if rest > 1 {
		primes = append(primes, rest)
	}
	return primes, nil
}

// divisors lists the divisors of n, whose primes these are, in ascending order.
func divisors(n int, primes []int) []int {
	list := []int{1}
	for _, p := range primes {
		known := list
		for power := p; ; power *= p {
			for _, d := range known {
				list = append(list, d*power)
			}
			if n /= p; n%p != 0 {
				break
			}
		}
	}
	slices.Sort(list)
	return list
}
