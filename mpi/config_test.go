package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// A Config's settings replace the environment's; its defaults apply where nothing else is said.
func TestConfig(t *testing.T) {
	r := launch(t, 2, configured, "WEFT_FABRIC=of the environment", "WEFT_EAGER_MAX=1K")
	require.NoError(t, r.Failure, "%s", r.Err)
}

var configured = launchertest.Body("configured", func() error {
	ctx := context.Background()
	for _, wrong := range []struct {
		conf mpi.Config
		text string
	}{
		{mpi.Config{Settings: map[string]string{"WEFT_FABIRC": "shm"}}, `mpi: Init: "WEFT_FABIRC" is no setting; did you mean WEFT_FABRIC?`},
		{mpi.Config{Defaults: map[string]string{"WEFT_QUUX": "1"}}, `mpi: Init: "WEFT_QUUX" is no setting (weft info`},
	} {
		_, err := mpi.Init(ctx, wrong.conf)
		if err := want("error", fmt.Sprint(err)[:len(wrong.text)], wrong.text); err != nil {
			return err
		}
	}
	right := mpi.Config{
		Settings: map[string]string{"WEFT_FABRIC": "shm"},
		Defaults: map[string]string{"WEFT_FABRIC": "by default", "WEFT_EAGER_MAX": "1",
			"WEFT_SHRINK_AFTER": "never"},
	}
	return mpi.Run(ctx, func(_ context.Context, world *mpi.Comm) error {
		got := make([]byte, 512)
		if _, err := mpi.Sendrecv(world, make([]byte, 512), 1-world.Rank(), 0, got, 1-world.Rank(),
			0); err != nil {
			return err
		}
		// the default of 1 byte does not apply
		return want("messages by rendezvous", world.Stats().Channels[0].Rendezvous, 0)
	}, right)
})
