package launchertest_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
)

func TestMain(m *testing.M) {
	launchertest.Play()
	os.Exit(m.Run())
}

// long is more than a pipe holds.
var long = strings.Repeat("0123456789abcde\n", 1<<13)

var (
	writing = launchertest.Body("writing", func() error {
		fmt.Print(long)
		fmt.Fprintln(os.Stderr, os.Getenv("LAUNCHERTEST_WORD"))
		return nil
	})
	failing = launchertest.Body("failing", func() error { return errors.New("the matrix is singular") })
)

func TestRun_GivesAllOutput(t *testing.T) {
	r := launchertest.Run(t, launchertest.Ranks(2, writing, "LAUNCHERTEST_WORD=one"),
		launchertest.Ranks(1, writing, "LAUNCHERTEST_WORD=two"))
	require.NoError(t, r.Failure, r.Err)
	require.Equal(t, strings.Repeat(long, 3), r.Out)
	require.Equal(t, [2]int{2, 1}, [2]int{strings.Count(r.Err, "one\n"), strings.Count(r.Err, "two\n")},
		r.Err)
}

func TestRun_GivesTheFailure(t *testing.T) {
	for body, want := range map[string]struct {
		status int
		text   string
	}{failing: {1, "the matrix is singular\n"}, "flying": {3, "no such body: flying\n"}} {
		r := launchertest.Run(t, launchertest.Ranks(1, body))
		require.Equal(t, want.status, launcher.ExitStatus(r.Failure), r.Err)
		require.Contains(t, r.Err, want.text)
		if want.status == 1 {
			require.ErrorContains(t, r.Failure, want.text[:len(want.text)-1])
		}
		require.Empty(t, r.Out)
	}
}

func TestBody_NamesAreTakenOnce(t *testing.T) {
	require.Panics(t, func() { launchertest.Body(failing, func() error { return nil }) })
}
