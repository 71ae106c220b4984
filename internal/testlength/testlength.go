// Package testlength says how much tests are to do: all of it, or the part of it that go test has time for.
package testlength

import "os"

// Whole reports whether tests run all their repetitions and combinations. The environment variable
// WEFT_TEST_WHOLE, which a test's ranks inherit, says so; the step simulation of .ci/run sets it.
func Whole() bool { return os.Getenv("WEFT_TEST_WHOLE") != "" }

// Of returns whole where tests run at their whole length, else part.
func Of[T any](whole, part T) T {
	if Whole() {
		return whole
	}
	return part
}
