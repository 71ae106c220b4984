package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

// weft bench takes part in the job that a launcher has started it in, and starts one of its own elsewhere. The
// environments are those of wireup's TestDetection, which says what each process is.
func TestBench_KnowsWhetherALauncherHasStartedIt(t *testing.T) {
	files, err := filepath.Glob("../../../mpi/internal/wireup/testdata/environments/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		record, err := txtar.ParseFile(file)
		require.NoError(t, err)
		require.Equal(t, "env", record.Files[0].Name)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			setEnvironment(t, strings.Split(strings.TrimSpace(string(record.Files[0].Data)), "\n"))
			alone := strings.Contains(string(record.Comment), "\nprocess: alone\n")
			require.Equal(t, !alone, inJob())
		})
	}
}

// Where several variables tell it, one of them is enough; those of torchrun have such common names that it takes
// both.
func TestBench_OneVariableTellsThatALauncherHasStartedIt(t *testing.T) {
	for environment, in := range map[string]bool{
		"WEFT_RANK=1": true, "PMI_RANK=0": true, "PMI_FD=3": true, "PMIX_RANK=0": true,
		"OMPI_COMM_WORLD_RANK=0": true, "RANK=1 WORLD_SIZE=2": true, "RANK=1": false, "WORLD_SIZE=2": false,
	} {
		t.Run(environment, func(t *testing.T) {
			setEnvironment(t, strings.Fields(environment))
			require.Equal(t, in, inJob())
		})
	}
}

// setEnvironment gives a test these variables alone.
func setEnvironment(t *testing.T, variables []string) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		t.Setenv(name, "") // to have it restored
		os.Unsetenv(name)
	}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}
