//go:build race

package tcp

// raceDetector says whether tests run several times slower.
const raceDetector = true
