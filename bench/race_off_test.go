//go:build !race

package bench

// raceDetector says that tests run several times slower.
const raceDetector = false
