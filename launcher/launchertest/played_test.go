package launchertest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A package without a TestMain is told what to write, before a process runs its tests again.
func TestPlayIsForgotten(t *testing.T) {
	require.NoError(t, checkPlayed())
	played = false
	defer func() { played = true }()
	require.ErrorContains(t, checkPlayed(),
		"\n\tfunc TestMain(m *testing.M) {\n\t\tlaunchertest.Play()\n\t\tos.Exit(m.Run())\n\t}\n")
}
