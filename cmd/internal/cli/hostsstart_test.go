package cli

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A job of one rank on each of 16 hosts over ssh, from its start to its end, beside other launchers. They take
// turns, and the fastest of the rounds counts. Nothing else should run on the machine:
// WEFT_TEST_NAMESPACES=1 go test -run '^$' -bench HostsStart -benchtime 5x ./cmd/...
func BenchmarkHostsStart(b *testing.B) {
	const hosts = 16
	c := newCluster(b, hosts)
	c.write("ssh", "#!/bin/sh\nexec ssh -F "+c.dir+"/ssh_config \"$@\"\n")
	require.NoError(b, os.Chmod(c.dir+"/ssh", 0o755))
	list, count := strings.Join(c.hosts, ","), fmt.Sprint(hosts)
	launchers := []struct {
		name    string
		command []string
	}{
		{"weft", []string{c.dir + "/weft", "run", "--host", strings.Join(c.hosts, ":1,") + ":1",
			"--starter", c.dir + "/ssh {host}", "true"}},
		{"hydra", []string{"mpiexec.hydra", "-localhost", "10.77.0.254", "-launcher", "ssh",
			"-launcher-exec", c.dir + "/ssh", "-hosts", list, "-ppn", "1", "-n", count, "true"}},
		{"openmpi", []string{"mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent",
			c.dir + "/ssh", "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--host", list, "-n", count, "true"}},
	}
	best := make([]time.Duration, len(launchers))
	for b.Loop() {
		for i, l := range launchers {
			if _, err := exec.LookPath(l.command[0]); err != nil {
				continue
			}
			began := time.Now()
			words := append([]string{"netns", "exec", c.head, "timeout", "60"}, l.command...)
			if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
				require.NotEqual(b, "weft", l.name, "%s", out)
				b.Logf("%s: %v", l.name, err) // Open MPI's daemons crash now and then where many share a machine
				continue
			}
			if took := time.Since(began); best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all launchers together
	for i, l := range launchers {
		if best[i] != 0 {
			b.ReportMetric(best[i].Seconds(), l.name+"-s")
		}
	}
}
