package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Free reports every mapping that could not be removed.
func TestTarget_UnmapJoinsErrors(t *testing.T) {
	e := world(t, simDevices(1, 1))[0]
	control, memory := errors.New("control block"), errors.New("memory")
	target := &Target{w: &Window{e: e}, unmaps: []func() error{
		func() error { return control },
		func() error { return memory },
		func() error { return nil },
	}}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := target.unmapLocked()
	require.ErrorIs(t, err, control)
	require.ErrorIs(t, err, memory)
	require.Empty(t, target.unmaps)
}
