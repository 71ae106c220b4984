//go:build !race

package chaostest

const memoryFactor = 1
