package launcher

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// An input that cannot be made has nothing to close: not descriptor 0, of all things.
func TestInputThatCannotBeMade(t *testing.T) {
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: limit.Max}))
	in, err := newInput(os.Stdin)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, syscall.EMFILE)
	require.Nil(t, in)
}
