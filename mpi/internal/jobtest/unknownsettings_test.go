package jobtest_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

var comingAndGoing = launchertest.Body("coming and going", func() error {
	return mpi.Run(context.Background(), func(context.Context, *mpi.Comm) error { return nil })
})

// Where weft's launcher does not tell of a mistyped variable, the program itself does.
func TestInit_WarnsOfAMisspeltSetting(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(launchertest.Environ(comingAndGoing), "WEFT_FABIRC=tcp")...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "did you mean WEFT_FABRIC?")
}
