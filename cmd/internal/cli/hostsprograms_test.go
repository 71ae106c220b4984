package cli

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
)

// A rankProgram is what the ranks of a job on several hosts run, whoever starts them.
type rankProgram struct {
	name    string
	ranks   int
	command []string
	check   func(t *testing.T, out string)
}

// rankPrograms builds into a folder that all hosts share what jobs on several hosts run: an example whose
// picture has to be that of one host, a random mixture of messages whose bytes and order are checked, and two
// benchmarks. The command weft is in the folder.
func rankPrograms(t *testing.T, dir string) []rankProgram {
	for _, build := range [][]string{
		{"build", "-o", dir + "/heat", "../../../examples/heat"}, {"test", "-c", "-o", dir + "/messages", "../../../mpi"},
	} {
		out, err := exec.Command("go", build...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	heat := []string{dir + "/heat", "-width", "384", "-height", "256", "-steps", "400", "-output", dir + "/heat.png"}
	out, err := exec.Command(dir+"/weft", append([]string{"run", "-n", "8"}, heat...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	ofOneHost, err := os.ReadFile(dir + "/heat.png")
	require.NoError(t, err)
	mixture := append([]string{"env", "MIXTURE_MESSAGES=6400", "MIXTURE_SEED=17"},
		launchertest.Environ("mixture")...)
	return []rankProgram{
		{"heat", 8, heat, func(t *testing.T, out string) {
			require.Contains(t, out, "bit for bit what one rank computes alone")
			picture, err := os.ReadFile(dir + "/heat.png")
			require.NoError(t, err, out)
			require.NoError(t, os.Remove(dir+"/heat.png"))
			require.Equal(t, ofOneHost, picture, "the picture is not that of one host")
		}},
		{"mixture", 8, append(mixture, dir+"/messages"), func(t *testing.T, out string) {
			require.Contains(t, out, "6400 messages\n")
		}},
		{"latency", 2, []string{dir + "/weft", "bench", "latency", "-m", "8:4K", "-i", "50", "-x", "5", "-c"}, passes},
		{"multi_lat", 8, []string{dir + "/weft", "bench", "multi_lat", "-m", "8:16", "-i", "20", "-x", "2", "-c"},
			passes},
	}
}

// passes checks a table, from 8 bytes on, in which every message was right.
func passes(t *testing.T, out string) {
	require.Regexp(t, `(?m)^8 +[\d.]+ +Pass$`, out)
	require.NotContains(t, out, "Fail")
	require.Equal(t, 1, strings.Count(out, "# Size"), out)
}

// A way starts a program as so many ranks on several hosts, and returns what they have written to standard
// output. It fails the test unless all end well.
type way struct {
	name string
	run  func(t *testing.T, ranks int, command ...string) string
}

// everywhere runs each program in each way.
func everywhere(t *testing.T, programs []rankProgram, ways ...way) {
	for _, w := range ways {
		for _, p := range programs {
			t.Run(w.name+"/"+p.name, func(t *testing.T) { p.check(t, w.run(t, p.ranks, p.command...)) })
		}
	}
}

// Programs do on four hosts what they do on one, whoever starts them.
func TestHosts_Programs(t *testing.T) {
	c := newCluster(t, 4)
	overSSH := func(options ...string) func(*testing.T, int, ...string) string {
		return func(t *testing.T, ranks int, command ...string) string {
			j := c.start(2, slices.Concat(options, []string{"-n", fmt.Sprint(ranks), "--ppn", perHost(ranks)}, command)...)
			require.Zero(t, j.wait(), j.out.String()+j.err.String())
			return j.out.String()
		}
	}
	ways := []way{{"ssh", overSSH()}, {"a tree of agents", overSSH("--fan-out", "2")}, {"no launcher", c.direct}}
	if _, err := exec.LookPath("mpiexec.hydra"); err == nil {
		ways = append(ways, way{"Hydra", c.hydra()}, way{"Hydra with a port", c.hydra("-pmi-port")})
	}
	everywhere(t, rankPrograms(t, c.dir), ways...)
	for i := range c.hosts {
		c.gone(i)
	}
}

// perHost is how many of the ranks each host gets: 8 fill four hosts, and 2 are on a host each.
func perHost(ranks int) string { return fmt.Sprint(max(1, ranks/4)) }

// hydra runs programs by MPICH's launcher, with more options.
func (c *cluster) hydra(options ...string) func(t *testing.T, ranks int, command ...string) string {
	c.write("ssh", "#!/bin/sh\nexec ssh -F "+c.dir+"/ssh_config \"$@\"\n")
	require.NoError(c.t, os.Chmod(c.dir+"/ssh", 0o755))
	return func(t *testing.T, ranks int, command ...string) string {
		t.Helper()
		args := slices.Concat([]string{"timeout", "300", "ip", "netns", "exec", c.head, "mpiexec.hydra"}, options,
			[]string{"-localhost", "10.77.0.254", "-launcher", "ssh", "-launcher-exec", c.dir + "/ssh",
				"-hosts", strings.Join(c.hosts, ","), "-ppn", perHost(ranks), "-n", fmt.Sprint(ranks)}, command)
		return c.must(args...)
	}
}

// direct runs programs with no launcher. Rank 0 is on the first host.
func (c *cluster) direct(t *testing.T, ranks int, command ...string) string {
	c.write("secret", strings.Repeat("s", 32))
	return c.each(ranks, func(rank int) []string {
		return append([]string{"env", fmt.Sprint("WEFT_RANK=", rank), fmt.Sprint("WEFT_SIZE=", ranks),
			"WEFT_COORDINATOR=" + c.hosts[0] + ":5700", "WEFT_SECRET_FILE=" + c.dir + "/secret"}, command...)
	}, func() {})
}
