package mpi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kernelKills skips a test where the kernel does not destroy sockets on request.
func kernelKills(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("ss is missing (Debian: iproute2), by which the kernel is asked to destroy sockets")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	out, err := exec.Command("ss", "-K", "-Htn", "src", c.LocalAddr().String()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	c.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Skip("the kernel destroys no sockets: it needs CONFIG_INET_DIAG_DESTROY, and we the capability CAP_NET_ADMIN")
	}
}

// connections are the local addresses of a rank's TCP connections.
func (j *processes) connections(rank int) (list []string) {
	j.t.Helper()
	out, err := exec.Command("ss", "-Htnp", "state", "established").Output()
	require.NoError(j.t, err)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, fmt.Sprintf("pid=%d,", j.ranks[rank].cmd.Process.Pid)) {
			list = append(list, strings.Fields(line)[2])
		}
	}
	return list
}

// TestLanes_H5_KilledByTheKernel: the kernel destroys the sockets of lanes while ranks send each other messages at random. Every byte is right, and both ends
// tell of each socket.
func TestLanes_H5_KilledByTheKernel(t *testing.T) {
	kernelKills(t)
	const ranks, lanes = 2, 3
	rng := rand.New(rand.NewPCG(1, 2))
	j := begin(t, ranks, lossy, "WEFT_LANES=3", "LOSSY_SEED=5")
	full := func(s laneSums) bool { return s.lanes >= whole(ranks, lanes) }
	j.until("all lanes are there", full)
	killed := 0
	for i := range 5 {
		sockets := j.connections(i % ranks)
		require.NotEmpty(t, sockets)
		for _, s := range sockets[:1+rng.IntN(len(sockets))] { // in the end all of them at once
			out, err := exec.Command("ss", "-K", "-Htn", "src", s).CombinedOutput()
			require.NoError(t, err, "%s", out)
			killed++
		}
		j.until("both ends of each killed lane know", func(s laneSums) bool { return s.down >= 2*killed })
		j.until("all lanes are back", full)
	}
	j.finish()
}
