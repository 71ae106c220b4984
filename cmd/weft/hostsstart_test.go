package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A job of one rank on each of 16 hosts over ssh, from its start to its end, beside other launchers. The
// fastest of some rounds counts, and the launchers take turns. It compares times, and so needs a machine that
// does nothing else.
func TestHosts_StartTime(t *testing.T) {
	if os.Getenv("WEFT_TEST_HOSTS_TIME") == "" {
		t.Skip("compares times: set WEFT_TEST_HOSTS_TIME=1 on a quiet machine")
	}
	const hosts = 16
	c := newCluster(t, hosts)
	c.write("ssh", "#!/bin/sh\nexec ssh -F "+c.dir+"/ssh_config \"$@\"\n")
	require.NoError(t, os.Chmod(c.dir+"/ssh", 0o755))
	list, count := strings.Join(c.hosts, ","), fmt.Sprint(hosts)
	launchers := []struct {
		name    string
		command []string
	}{
		{"weft run", []string{c.dir + "/weft", "run", "--host", strings.Join(c.hosts, ":1,") + ":1",
			"--starter", c.dir + "/ssh {host}", "true"}},
		{"mpiexec.hydra", []string{"mpiexec.hydra", "-localhost", "10.77.0.254", "-launcher", "ssh",
			"-launcher-exec", c.dir + "/ssh", "-hosts", list, "-ppn", "1", "-n", count, "true"}},
		{"mpirun.openmpi", []string{"mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent",
			c.dir + "/ssh", "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--host", list, "-n", count, "true"}},
	}
	best := make([]time.Duration, len(launchers))
	for range 5 {
		for i, l := range launchers {
			if _, err := exec.LookPath(l.command[0]); err != nil {
				continue
			}
			began := time.Now()
			c.must(append([]string{"timeout", "60", "ip", "netns", "exec", c.head}, l.command...)...)
			if took := time.Since(began); best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	for i, l := range launchers {
		t.Logf("%-15s %v", l.name, best[i].Round(time.Millisecond))
	}
	for i, l := range launchers {
		if best[i] != 0 {
			require.LessOrEqual(t, best[0], best[i], "weft run is slower than %s", l.name)
		}
	}
}
