package mpi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
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

// lanes are the local addresses of a rank's connections that have carried more than a start-up takes. It
// waits until there is one.
func (j *processes) lanes(rank int) (list []string) {
	j.t.Helper()
	of := fmt.Sprintf("pid=%d,", j.ranks[rank].cmd.Process.Pid)
	j.until("a connection carries messages", func(laneSums) bool {
		out, err := exec.Command("ss", "-HOtnpi", "state", "established").Output()
		require.NoError(j.t, err)
		for line := range strings.Lines(string(out)) {
			fields, carried := strings.Fields(line), 0
			for _, f := range fields {
				for _, name := range []string{"bytes_sent:", "bytes_received:"} {
					if number, ok := strings.CutPrefix(f, name); ok {
						n, err := strconv.Atoi(number)
						require.NoError(j.t, err)
						carried += n
					}
				}
			}
			if strings.Contains(line, of) && carried > startup {
				list = append(list, fields[2])
			}
		}
		return len(list) > 0
	})
	return list
}

// TestLanes_H5_KilledByTheKernel: the kernel destroys the sockets of lanes while ranks send each other
// messages at random. Every byte is right, and both ends tell of each socket. A connection of one lane
// outlives its socket too, where that is asked for.
func TestLanes_H5_KilledByTheKernel(t *testing.T) {
	kernelKills(t)
	for lanes, env := range map[int]string{3: "WEFT_LANES=3", 1: "WEFT_RECONNECT=on"} {
		t.Run(env, func(t *testing.T) {
			const ranks = 2
			rng := rand.New(rand.NewPCG(1, 2))
			j := begin(t, ranks, lossy, env, "WEFT_FABRIC=tcp", "LOSSY_SEED=5")
			full := func(s laneSums) bool { return s.lanes >= whole(ranks, lanes) }
			j.until("all lanes are there", full)
			killed := 0
			for i := range 5 {
				sockets := j.lanes(i % ranks)
				for _, s := range sockets[:1+rng.IntN(len(sockets))] {
					out, err := exec.Command("ss", "-K", "-Htn", "src", s).CombinedOutput()
					require.NoError(t, err, "%s", out)
					killed++
				}
				j.until("both ends of each killed lane know",
					func(s laneSums) bool { return s.down >= 2*killed })
				j.until("as many lanes as were killed are back", full)
			}
			j.finish()
		})
	}
}
