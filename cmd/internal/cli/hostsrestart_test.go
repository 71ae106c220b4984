package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// disk is the folder for checkpoints, which is another one on each host.
const disk = "own/checkpoint"

// A heatJob is heat of eight ranks on four hosts, which saves every few steps, and is struck.
type heatJob struct {
	*cluster
	*clusterJob
	random *rand.Rand
	over   chan struct{} // closed at its end
}

func (h *heatJob) isOver() bool {
	select {
	case <-h.over:
		return true
	default:
		return false
	}
}

func (h *heatJob) isHeat(line string) bool { return strings.HasPrefix(line, h.dir+"/heat ") }

// diskOf is the folder of a host as this process can reach it.
func (h *heatJob) diskOf(host int) string {
	for _, pid := range h.processes(h.names[host], func(line string) bool { return strings.Contains(line, "sshd") }) {
		if dir := fmt.Sprintf("/proc/%d/root%s/own", pid, h.dir); exists(dir) {
			return filepath.Join(fmt.Sprintf("/proc/%d/root%s", pid, h.dir), disk)
		}
	}
	h.t.Fatalf("host %d has no sshd", host)
	return ""
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

var checkpointFile = regexp.MustCompile(`^step-(\d+)-[0-9a-f]+-\d+\.of\.8\.(state|copy)$`)

// saved is the latest step of which a state is on a host: the one saved before it is whole. A busy machine may
// never see a step whose states are all there, as the next one replaces it.
func (h *heatJob) saved() int {
	latest := -1
	for host := range h.hosts {
		list, _ := os.ReadDir(h.diskOf(host))
		for _, e := range list {
			if m := checkpointFile.FindStringSubmatch(e.Name()); m != nil {
				step, _ := strconv.Atoi(m[1])
				latest = max(latest, step)
			}
		}
	}
	return latest
}

// waitSaved waits until more is saved than that step, or the job is over. It reports whether the job goes on.
func (h *heatJob) waitSaved(after int) bool {
	deadline := time.Now().Add(5 * time.Minute)
	for h.saved() <= after {
		select {
		case <-h.over:
			return false
		case <-time.After(20 * time.Millisecond):
		}
		require.True(h.t, time.Now().Before(deadline), "nothing is saved after step %d: %s", after, h.err.String())
	}
	return true
}

// strikeHost kills all of the job on a host, which loses its disk, too.
func (h *heatJob) strikeHost(host int) (struck bool) {
	struck = kill(h.processes(h.names[host], func(line string) bool {
		return h.isHeat(line) || strings.HasPrefix(line, h.dir+"/weft agent")
	}))
	require.NoError(h.t, os.RemoveAll(h.diskOf(host)))
	return struck
}

// strikeRank kills a rank, if there is one on the host at the moment.
func (h *heatJob) strikeRank(host int) (struck bool) {
	pids := h.processes(h.names[host], h.isHeat)
	if len(pids) == 0 {
		return false
	}
	n := h.random.IntN(len(pids))
	return kill(pids[n : n+1])
}

// kill kills processes, and reports whether one of them was there.
func kill(pids []int) (struck bool) {
	for _, pid := range pids {
		p, _ := os.FindProcess(pid)
		struck = p.Kill() == nil || struck
	}
	return struck
}

// cut cuts a host off, until its ranks must have ended, and the job has started without it. A job whose host is
// cut off cannot end before.
func (h *heatJob) cut(host int) {
	port := fmt.Sprint("port", host)
	h.must("ip", "-n", h.head, "link", "set", port, "down")
	defer h.must("ip", "-n", h.head, "link", "set", port, "up")
	require.False(h.t, h.isOver(), "the job ended before host %d was cut off: it needs more steps", host)
	require.Eventually(h.t, func() bool {
		return len(h.processes(h.names[host], h.isHeat)) == 0
	}, 2*time.Minute, 50*time.Millisecond, "ranks go on on host %d, which is cut off", host)
	require.Eventually(h.t, func() bool {
		if h.isOver() {
			return true
		}
		n := 0
		for i := range h.hosts {
			n += len(h.processes(h.names[i], h.isHeat))
		}
		return n == 8 && len(h.processes(h.names[host], h.isHeat)) == 0
	}, 2*time.Minute, 5*time.Millisecond, "the job does not start without host %d: %s", host, h.err.String())
}

// The picture of heat is that of an undisturbed run, bit for bit, although a rank or a whole host with its disk
// is lost every few seconds. WEFT_TEST_HOSTS_RESTARTS is how many jobs are to run; the first of them has a host
// cut off as well.
func TestHosts_Restarts(t *testing.T) {
	jobs := 2
	if text := os.Getenv("WEFT_TEST_HOSTS_RESTARTS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		jobs = n
	}
	c := newCluster(t, 4)
	c.limit = 10 * time.Minute
	c.must("go", "build", "-o", c.dir+"/", "../../../examples/heat")
	args := []string{c.dir + "/heat", "-width", "293", "-height", "211", "-steps", "12000", "-check=false"}
	j := c.start(2, append(args, "-output", c.dir+"/undisturbed.png")...)
	began := time.Now()
	require.Zero(t, j.wait(), j.err.String())
	t.Logf("undisturbed in %v", time.Since(began))
	want, err := os.ReadFile(c.dir + "/undisturbed.png")
	require.NoError(t, err)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	strikes := map[string]int{}
	for n := range jobs {
		file := fmt.Sprintf("%s/%d.png", c.dir, n)
		h := &heatJob{c, c.start(2, append(append([]string{"--restarts", "100", args[0]}, args[1:]...), "-output", file,
			"-checkpoint", c.dir+"/"+disk, "-checkpoint-every", "100")...), random, make(chan struct{})}
		status := 0
		go func() { status = h.wait(); close(h.over) }()
		for struck, last := 0, -1; h.waitSaved(last); struck++ {
			last = h.saved()
			host := random.IntN(len(c.hosts))
			switch kind := random.IntN(3); {
			case n == 0 && struck == 0:
				strikes["cut"]++
				h.cut(host)
			case kind == 0:
				if h.strikeHost(host) {
					strikes["host"]++
				}
			default:
				if h.strikeRank(host) {
					strikes["rank"]++
				}
			}
			time.Sleep(time.Duration(1000+random.IntN(2000)) * time.Millisecond)
		}
		require.Zero(t, status, h.err.String())
		require.Contains(t, h.err.String(), "the job starts again: restart ")
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, got, "the picture of job %d, seed %d: %s", n, seed, h.err.String())
		for host := range c.hosts {
			require.NoError(t, os.RemoveAll(h.diskOf(host)))
			c.gone(host)
		}
		t.Logf("%d jobs, struck %v", n+1, strikes)
	}
}
