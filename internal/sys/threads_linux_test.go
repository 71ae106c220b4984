package sys

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Threads that have been reserved are there when the system refuses further ones.
func TestReserveThreads(t *testing.T) {
	const variable, threads = "SYS_TEST_THREADS", 20
	if os.Getenv(variable) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestReserveThreads$")
		cmd.Env = append(os.Environ(), variable+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	ReserveThreads(threads)
	if os.Getuid() == 0 {
		require.NoError(t, syscall.Setuid(1<<20+os.Getpid())) // the limit does not hold for root
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{}))
	limit, err := ProcessLimit()
	require.NoError(t, err)
	require.Zero(t, limit)
	ReserveThreads(threads - 2) // the test's own goroutine, and one that ends it, may hold some
}
