//go:build !race

package jobtest_test

// raceDetector says that tests run several times slower.
const raceDetector = false
