package cli

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
)

// buildSurvivor builds the program that goes on when ranks are lost.
func buildSurvivor(t *testing.T, dir string) {
	out, err := exec.Command("go", "build", "-o", dir+"/", "./testdata/survivor").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A job that survives failures goes on without a rank, and without all ranks of a host whose agent or whose
// link is lost.
func TestHosts_Survive(t *testing.T) {
	c := newCluster(t, 4)
	buildSurvivor(t, c.dir)
	pids := func(host int, prefix string) (list []string) {
		for pid := range strings.FieldsSeq(c.must("ip", "netns", "pids", c.names[host])) {
			if text, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.HasPrefix(string(text), prefix) {
				list = append(list, pid)
			}
		}
		return list
	}
	for _, fault := range []struct {
		name   string
		left   int
		strike func()
	}{
		{"rank", 7, func() { c.must("kill", "-9", pids(1, c.dir+"/survivor")[0]) }},
		{"ranks of a host", 6, func() {
			c.must(append([]string{"kill", "-9"}, pids(0, c.dir+"/survivor")...)...)
		}},
		{"agent", 6, func() { c.must("kill", "-9", pids(2, c.dir+"/weft\x00agent")[0]) }},
		{"link", 6, func() { c.must("ip", "-n", c.head, "link", "set", "port3", "down") }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			j := c.start(2, "--survive", c.dir+"/survivor", string(rune('0'+fault.left)))
			require.Eventually(t, func() bool {
				for host := range c.hosts {
					if len(pids(host, c.dir+"/survivor")) != 2 {
						return false
					}
				}
				return true
			}, 2*time.Minute, 20*time.Millisecond, "the ranks do not come up")
			time.Sleep(200 * time.Millisecond) // any moment will do
			fault.strike()
			require.Equal(t, 3, j.wait(), j.out.String()+j.err.String())
			require.Equal(t, fault.left, strings.Count(j.out.String(), "went on with"), j.out.String()+j.err.String())
			require.Contains(t, j.err.String(), "weft: the job went on to its end without ")
		})
	}
}

// Ranks die in the middle of each call, one, two, or all of a host with its agent. The survivors on all hosts
// leave the call, shrink, and come to the right result. WEFT_TEST_HOSTS_SURVIVE is how many jobs are to run;
// WEFT_TEST_HOSTS_SURVIVE_FROM the number of the first.
func TestHosts_SurviveInCalls(t *testing.T) {
	jobs, from := 6, 0
	for variable, number := range map[string]*int{
		"WEFT_TEST_HOSTS_SURVIVE": &jobs, "WEFT_TEST_HOSTS_SURVIVE_FROM": &from,
	} {
		if text := os.Getenv(variable); text != "" {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			*number = n
		}
	}
	c := newCluster(t, 4)
	c.limit = time.Minute * time.Duration(2+jobs)
	program := c.dir + "/calls"
	c.must("go", "test", "-c", "-o", program, "../../../mpi")
	calls := strings.Fields(c.must(append(append([]string{"env"}, launchertest.Environ("struck calls")...), program)...))
	require.Greater(t, len(calls), 50)
	for n := from; n < from+jobs; n++ {
		// a step that is prime to their number takes the calls in turn, of different kinds one after another
		call := calls[n*17%len(calls)]
		victims, strike := fmt.Sprint(n%8), "rank"
		switch n / 8 % 4 {
		case 1:
			victims = fmt.Sprintf("%d,%d", n%8, (n+3)%8)
		case 2:
			victims = fmt.Sprintf("%d,%d", n%4*2, n%4*2+1)
		case 3:
			victims, strike = fmt.Sprintf("%d,%d", n%4*2, n%4*2+1), "agent"
		}
		left := 8 - len(strings.Split(victims, ","))
		t.Run(fmt.Sprintf("%d/%s/%s %s", n, call, strike, victims), func(t *testing.T) {
			var args []string
			for _, v := range append(launchertest.Environ("survives"), "SURVIVE_CALL="+call,
				"SURVIVE_VICTIMS="+victims, "SURVIVE_STRIKE="+strike, fmt.Sprint("SURVIVE_SEED=", n)) {
				args = append(args, "-x", v)
			}
			j := c.start(2, append(append([]string{"--survive", "--timeout", "1m"}, args...), program)...)
			require.Equal(t, 3, j.wait(), j.out.String()+j.err.String())
			require.Equal(t, left, strings.Count(j.out.String(), fmt.Sprintf("went on with %d\n", left)),
				j.out.String()+j.err.String())
		})
	}
}
