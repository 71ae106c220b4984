// Package jobtest has the tests of package mpi whose programs are jobs of processes: how they start, end,
// hang and fail, and what they show of themselves.
package jobtest
