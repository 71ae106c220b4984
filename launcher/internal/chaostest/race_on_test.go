//go:build race

package chaostest

// memoryFactor is by how much more memory processes take with the race detector.
const memoryFactor = 6
