package main

import (
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// The picture does not depend on the number of ranks.
func TestPicture(t *testing.T) {
	var want []byte
	for _, n := range exampletest.Ranks() {
		dir := t.TempDir()
		stdout, stderr, failure := exampletest.Launch(t, n, dir, "-width", "100", "-height", "70", "-tile", "16",
			"-limit", "200", "-output", "set.png", "-progress")
		require.NoError(t, failure, stderr)
		require.Regexp(t, `^100 × 70 pixels in 35 tiles, \d{3,4} inside\n$`, stdout)
		require.Contains(t, stderr, "pool: 35 tasks in ")
		got, err := os.ReadFile(filepath.Join(dir, "set.png"))
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "%d ranks", n)
		f, err := os.Open(filepath.Join(dir, "set.png"))
		require.NoError(t, err)
		picture, err := png.Decode(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		_, _, _, alpha := picture.At(0, 0).RGBA()
		r, _, _, _ := picture.At(70, 35).RGBA() // the origin
		require.Equal(t, fmt.Sprint(uint32(0), uint32(0xffff)), fmt.Sprint(r, alpha))
	}
}

func TestBadArguments(t *testing.T) {
	exampletest.RefusedEach(t, map[string]string{
		"-tile 0":          "-tile 0",
		"-limit 70000":     "-limit 70000",
		"-width 0":         "-width 0",
		"-height 99999999": "-height 99999999",
		"set.png":          `"set.png" is not a flag`,
		"-output /":        "-output",
	})
	exampletest.Helps(t, "-tile")
}
