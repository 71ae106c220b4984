package mpitest

import (
	"testing"
	"time"
)

// WaitLess has what does not end given up soon.
func WaitLess() { busyFor, returnWithin = time.Second, time.Second }

// Traced runs a job with a seed, and returns what its ranks have done, and in which order they took turns.
func Traced(t *testing.T, n int, body Body, seed uint64) (calls string, turns uint64) {
	j := newJob(t, n, body, seed, &options{})
	told := newTrace(n)
	j.listen = told.take
	if err := runOnce(j); err != nil {
		t.Fatal(err)
	}
	return told.String(), j.turns.sum
}

// Exploration is Explore without its verdict: what it has found, and what it says of it.
func Exploration(t *testing.T, n int, body Body, opts ...Option) (Explored, string) {
	o, err := chosen(t, "Explore", n, body, opts)
	if err != nil {
		t.Fatal(err)
	}
	return explore(t, n, body, o)
}
