//go:build !race

package mpi_test

// raceDetector says that tests run several times slower.
const raceDetector = false
