package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A strike is one fault of a job on several hosts: what is hit, and what the job then has to say.
type strike struct {
	name   string
	hit    func(c *cluster, j *clusterJob, host int)
	status int
	cause  func(host int) string // a regular expression; "" where nobody is left to say anything
}

var strikes = []strike{
	{"rank", func(c *cluster, _ *clusterJob, host int) { c.kill(c.names[host], c.isRank) }, 137,
		func(host int) string {
			return fmt.Sprintf(`^weft: rank %d on 10\.77\.0\.%d \(pid \d+, .*\) was killed by signal 9`, host, host+1)
		}},
	{"agent", func(c *cluster, _ *clusterJob, host int) {
		c.kill(c.names[host], func(line string) bool { return strings.HasPrefix(line, c.dir+"/weft agent") })
	}, 1, hostIsLost},
	{"ssh", func(c *cluster, j *clusterJob, host int) {
		from := c.head
		if j.fanOut > 0 && host >= j.fanOut {
			from = c.names[host/j.fanOut-1]
		}
		c.kill(from, func(line string) bool {
			return strings.HasPrefix(line, "ssh ") && strings.Contains(line, " "+c.hosts[host]+" ")
		})
	}, 1, hostIsLost},
	{"launcher", func(_ *cluster, j *clusterJob, _ int) { j.cmd.Process.Kill() }, -1, nil},
	{"link", func(c *cluster, _ *clusterJob, host int) {
		c.must("ip", "-n", c.head, "link", "set", fmt.Sprint("port", host), "down")
	}, 1, hostIsLost},
}

func hostIsLost(host int) string { return fmt.Sprintf(`^weft: host 10\.77\.0\.%d is lost: `, host+1) }

// slowStart is the notice that a start on a busy machine may take long enough for.
var slowStart = regexp.MustCompile(`(?m)^weft: waiting for weft to start on .*\n`)

// isRank tells ranks of TestHosts_Chaos by their command lines.
func (c *cluster) isRank(line string) bool {
	return line == "sleep 77" || strings.HasPrefix(line, c.dir+"/weft bench ")
}

// processes are those of a namespace whose command lines are as asked.
func (c *cluster) processes(namespace string, is func(line string) bool) (pids []int) {
	for text := range strings.FieldsSeq(c.must("ip", "netns", "pids", namespace)) {
		line, _ := os.ReadFile("/proc/" + text + "/cmdline")
		if is(strings.ReplaceAll(strings.TrimSuffix(string(line), "\x00"), "\x00", " ")) {
			pid, err := strconv.Atoi(text)
			require.NoError(c.t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills one process, with SIGKILL.
func (c *cluster) kill(namespace string, is func(line string) bool) {
	pids := c.processes(namespace, is)
	require.NotEmpty(c.t, pids)
	require.NoError(c.t, syscall.Kill(pids[0], syscall.SIGKILL))
}

// Whatever of a job is killed at whatever moment, the cause that is named is the right one, and nothing is
// left on any host. WEFT_TEST_HOSTS_CHAOS is how many jobs are to run.
func TestHosts_Chaos(t *testing.T) {
	jobs := 5
	if text := os.Getenv("WEFT_TEST_HOSTS_CHAOS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		jobs = n
	}
	c := newCluster(t, 4)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	counts := map[string]int{}
	for n := range jobs {
		s, host := strikes[random.IntN(len(strikes))], random.IntN(len(c.hosts))
		if n < len(strikes) {
			s = strikes[n]
		}
		program := []string{"sleep", "77"}
		if random.IntN(2) == 0 {
			program = []string{c.dir + "/weft", "bench", "barrier", "-i", "100000000"}
		}
		// A fan-out of 2 has the first host's agent start those of the third and the fourth.
		fanOut := 2 * random.IntN(2)
		if fanOut > 0 {
			program = append([]string{"--fan-out", fmt.Sprint(fanOut)}, program...)
		}
		what := fmt.Sprintf("job %d: %s of host %d, %q", n, s.name, host, program)
		j := c.start(1, program...)
		j.fanOut = fanOut
		for i := range c.hosts {
			require.Eventually(t, func() bool { return len(c.processes(c.names[i], c.isRank)) == 1 }, 2*time.Minute,
				5*time.Millisecond, "%s: the ranks do not come up: %s", what, j.err.String())
		}
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		s.hit(c, j, host)
		require.Equal(t, s.status, j.wait(), "%s: %s", what, j.err.String())
		said := slowStart.ReplaceAllString(j.err.String(), "")
		if s.cause != nil {
			require.Regexp(t, s.cause(host), said, what)
		} else {
			require.NotContains(t, said, "weft: ", what)
		}
		if s.name == "link" {
			c.must("ip", "-n", c.head, "link", "set", fmt.Sprint("port", host), "up")
		}
		for i := range c.hosts {
			require.Eventually(t, func() bool {
				return len(c.processes(c.names[i], func(line string) bool {
					return c.isRank(line) || strings.HasPrefix(line, c.dir+"/weft")
				})) == 0
			}, 2*time.Minute, 50*time.Millisecond, "%s: something is left on host %d", what, i)
		}
		if counts[s.name]++; (n+1)%25 == 0 {
			t.Logf("%d jobs, %v: nothing left, every cause right", n+1, counts)
		}
	}
}
