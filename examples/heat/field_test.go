package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

// A plate that was written after half of the steps and read again by another number of ranks ends as one of all
// steps does, bit for bit.
func TestFieldOnAnotherNumberOfRanks(t *testing.T) {
	dir := t.TempDir()
	run := func(ranks int, args ...string) []byte {
		args = append([]string{"-output", "", "-width", "50", "-height", "31"}, args...)
		stdout, stderr, failure := exampletest.Launch(t, ranks, dir, args...)
		require.NoError(t, failure, stderr)
		require.Contains(t, stdout, "comparison")
		b, err := os.ReadFile(filepath.Join(dir, args[len(args)-1]))
		require.NoError(t, err)
		return b
	}
	want := run(1, "-steps", "60", "-field", "all.npy")
	run(4, "-steps", "25", "-field", "first.npy")
	for _, ranks := range []int{1, 3} {
		require.Equal(t, want, run(ranks, "-steps", "35", "-from", "first.npy", "-field", "second.npy"))
	}
}

func TestFieldOfAnotherPlate(t *testing.T) {
	dir := t.TempDir()
	_, stderr, failure := exampletest.Launch(t, 2, dir, "-output", "", "-width", "20", "-height", "10", "-steps",
		"1", "-field", "f.npy")
	require.NoError(t, failure, stderr)
	for word, args := range map[string][]string{
		"shape [10 20], and the plate's is [10 21]": {"-width", "21", "-height", "10", "-from", "f.npy"},
		"no such file": {"-from", "none.npy"},
	} {
		_, stderr, failure := exampletest.Launch(t, 2, dir, append(args, "-output", "")...)
		require.Error(t, failure)
		require.Contains(t, stderr, word)
	}
}
