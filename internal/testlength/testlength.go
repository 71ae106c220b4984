// Package testlength says how much tests are to do: all of it, or the part of it that go test has time for.
package testlength

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

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

// InShort returns short where tests run in short, else usual. It is for tests, not for their ranks. The step
// race of .ci/run runs tests in short: the race detector makes them several times slower, so it leaves out
// combinations of which each part, and with it all concurrent code, is in what it runs. The step tests has
// them without the detector, and the step simulation with it.
func InShort[T any](usual, short T) T {
	if testing.Short() {
		return short
	}
	return usual
}

// NotInShort skips a test in short, for the reason that [InShort] has: other tests run the same concurrent
// code, or there is none.
func NotInShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("what is concurrent here other tests have, too; -short leaves this out")
	}
}

// MoreAtOnce has more parallel tests run at once than there are processors, unless the command line says how
// many. It is for tests that wait for processes most of the time; their TestMain calls it before they run.
func MoreAtOnce() { flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))) }
