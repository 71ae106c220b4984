package mpitest

import "testing"

// Traced runs a job with a seed, and returns what its ranks have done, and in which order they took turns.
func Traced(t *testing.T, n int, body Body, seed uint64) (calls string, turns uint64) {
	j := newJob(t, n, body, seed, options{})
	j.trace = newTrace(n)
	runOnce(j)
	return j.trace.String(), j.turns.sum
}

// Exploration is Explore without its verdict: what it has found, and what it says of it.
func Exploration(t *testing.T, n int, body Body, opts ...Option) (Explored, string) {
	return explore(t, n, body, checkRun(t, "Explore", n, body, opts))
}
