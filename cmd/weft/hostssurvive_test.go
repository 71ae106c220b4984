package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
			}, time.Minute, 20*time.Millisecond, "the ranks do not come up")
			time.Sleep(200 * time.Millisecond) // any moment will do
			fault.strike()
			require.Equal(t, 3, j.wait(), j.out.String()+j.err.String())
			require.Equal(t, fault.left, strings.Count(j.out.String(), "went on with"), j.out.String()+j.err.String())
			require.Contains(t, j.err.String(), "weft: the job went on to its end without ")
		})
	}
}
