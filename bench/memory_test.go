package bench

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// besideVariable tells a rank the report to have beside its own figures.
const besideVariable = "BENCH_TEST_BESIDE"

var goldenMemory = worldBody("golden memory", func(world *mpi.Comm) error {
	o := Default
	if path := os.Getenv(besideVariable); path != "" {
		o.Beside = []string{path}
	}
	own, fatal := newSession(find("memory"), o, world, os.Stdout, tick(world)).outcome()
	return errors.Join(own, fatal)
}, "WEFT_PHASES=640,16384", "WEFT_FABRIC=shm", "WEFT_ENDPOINTS=1", waitsUnconnected)

// residentColumn is the beginning of a row, with the resident memory.
var residentColumn = regexp.MustCompile(`(?m)^(\d+ +\d+ +\d+) +\d+`)

// TestTheTableOfMemory: registered memory is measured: a connection takes 10,496 bytes (E1), and the mailboxes
// of two ranks 1,920; 17 have none. Clock and resident memory are made up; the latter is not compared, as it
// grows with each look for mailboxes that all ranks have freed. Seen to fail where mailboxes that were freed
// still count.
func TestTheTableOfMemory(t *testing.T) {
	testlength.NotInShort(t)
	r := launch(t, group{17, goldenMemory})
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, `
# OSU-style weft MPI Memory Test v0.1.0
# Bytes of rank 0, all ranks in contact with each other. Large: buffers are large from the start.
# Ranks       Registered     Mailboxes      Resident   Connections/GiB
2                  12416          1920         -             86480
4                  37120          5632         -             86779
8                  86528         13056         -             86864
16                212224         54784         -             75892
17                167936             0         -            102300
`, residentColumn.ReplaceAllString(r.Out, "${1}         -"))
}

// Figures of the job before stand in the row of the same ranks; a row that it does not have stays empty.
func TestFiguresBesideAreThoseOfTheSameRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.json")
	t.Setenv(besideVariable, path)
	require.NoError(t, os.WriteFile(path, []byte(`{"schema": "weft-bench/1", "benchmark": "memory", "rows": [
		{"ranks": 2, "registered": 200, "resident": 300, "connections_per_gib": 400},
		{"ranks": 3, "registered": 201, "resident": 301, "connections_per_gib": 401}]}`), 0o600))
	r := launch(t, group{4, goldenMemory})
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, `
# OSU-style weft MPI Memory Test v0.1.0
# Bytes of rank 0, all ranks in contact with each other. Large: buffers are large from the start.
# Ranks       Registered     Mailboxes      Resident   Connections/GiB  Large: Registered  Large: Resident  Large: Connections/GiB
2                  12416          1920         31488             86480                200              300                     400
4                  37120          5632         94464             86779                  -                -                       -
`, r.Out)
	for _, text := range []string{"", "{", "null", `{"schema": "weft-bench/1", "benchmark": "phases"}`,
		`{"schema": "weft-bench/2", "benchmark": "memory"}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		r := launch(t, group{2, goldenMemory})
		requireStatus(t, r, 1)
		require.Equal(t, 1, strings.Count(r.Err, path+": no report of weft bench memory"), "%q: %s", text, r.Err)
		require.Empty(t, r.Out)
	}
}
