package wireup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/allocation"
	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/setting"
)

// engineVariables are those by which anything that starts processes is told.
var engineVariables = regexp.MustCompile(`^(SLURM|PMI|MPI|OMPI|WEFT|JOB_COMPLETION|AWS_BATCH|FLUX|PALS|ALPS|JSM|` +
	`RANK=|WORLD_SIZE|MASTER_|LSB_|PBS_|PE_HOSTFILE|HYDRA)`)

// Each engine as its processes see it: what a program of weft's makes of the environment, and which hosts weft
// run finds. docs/reference/detection.md has the table.
func TestDetection(t *testing.T) {
	files, err := filepath.Glob("testdata/environments/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	secret := secretFile(t, strings.Repeat("s", secretSize), 0o600)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			record, err := txtar.ParseFile(file)
			require.NoError(t, err)
			for _, v := range os.Environ() {
				if name, _, _ := strings.Cut(v, "="); engineVariables.MatchString(v) {
					t.Setenv(name, "") // to have it restored
					os.Unsetenv(name)
				}
			}
			contents := map[string][]byte{}
			for _, f := range record.Files[1:] {
				contents[f.Name] = f.Data
			}
			require.Equal(t, "env", record.Files[0].Name)
			for line := range strings.Lines(string(record.Files[0].Data)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				t.Setenv(name, strings.Replace(value, "SECRET", secret, 1))
			}
			found := func(word string) string {
				_, text, _ := strings.Cut(string(record.Comment), "\n"+word+": ")
				text, _, ok := strings.Cut(text, "\n")
				require.True(t, ok, word)
				return text
			}
			if text, isError := strings.CutPrefix(found("process"), "error "); isError {
				require.Contains(t, processIs(contents), text)
			} else {
				require.Equal(t, text, processIs(contents))
			}
			require.Equal(t, found("hosts"), hostsAre(t, contents))
		})
	}
}

func readFrom(contents map[string][]byte) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if text, ok := contents[name]; ok {
			return text, nil
		}
		return nil, os.ErrNotExist
	}
}

var stepPort = regexp.MustCompile(`:2\d{4}$`)

// processIs tells what Join makes of the environment, but for PMI, which it does not speak.
func processIs(contents map[string][]byte) string {
	if os.Getenv("PMI_FD") != "" {
		os.Setenv("PMI_FD", "none") // the number may be that of a descriptor of the test's
	}
	if client, err := pmi.FromEnv(); client != nil || err != nil {
		return "PMI"
	}
	place, err := findPlace(setting.Environment(), &environment{os.Getenv, readFrom(contents),
		func() (string, error) { return os.Getenv("HOSTNAME"), nil }})
	switch {
	case err == nil && place == nil:
		if err = unreachable(); err == nil {
			return "alone"
		}
		fallthrough
	case err != nil:
		return err.Error()
	case os.Getenv("SLURM_STEP_NODELIST") != "":
		place.Address = stepPort.ReplaceAllString(place.Address, ":PORT")
	}
	return fmt.Sprintf("rank %d of %d at %s", place.Rank, place.Size, place.Address)
}

func hostsAre(t *testing.T, contents map[string][]byte) string {
	found, err := allocation.Detect(allocation.Source{Getenv: os.Getenv, ReadFile: readFrom(contents)})
	require.False(t, errors.Is(err, os.ErrNotExist), err)
	require.NoError(t, err)
	if found == nil {
		return "none"
	}
	text := found.Engine
	for _, h := range found.Hosts {
		text += fmt.Sprintf(" %s:%d", h.Name, h.Slots)
	}
	return text
}
