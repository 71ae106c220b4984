package cli

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A job of several hosts that hangs is explained with the ranks of all of them: by itself, to weft top, and to
// SIGQUIT, after which it goes on.
func TestHosts_HangThatExplainsItself(t *testing.T) {
	c := newCluster(t, 2)
	c.must("go", "build", "-o", c.dir+"/", "./testdata/hang")
	cmd := exec.Command("ip", "netns", "exec", c.head, c.dir+"/weft", "run", "--host",
		c.hosts[0]+":2,"+c.hosts[1]+":2", "--starter", "ssh -F "+c.dir+"/ssh_config {host}", "--timeout", "2m",
		c.dir+"/hang")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGTERM)
	lines := bufio.NewScanner(stderr)
	report := func(title string) {
		t.Helper()
		var text strings.Builder
		for lines.Scan() {
			text.WriteString(lines.Text() + "\n")
			if !strings.HasSuffix(lines.Text(), ": neither can go on") {
				continue
			}
			require.Contains(t, text.String(), title)
			for _, line := range []string{"rank 0: Recv from 2, tag 5, at main.go:15", "rank 2: Recv from 0, tag 6, at main.go:18",
				"ranks 1,3: Barrier on world, at main.go:21"} {
				require.Contains(t, text.String(), line)
			}
			return
		}
		t.Fatal("there is no report:\n" + text.String())
	}
	report("weft: deadlock: no rank can ever go on\n")

	table := c.must("ip", "netns", "exec", c.head, c.dir+"/weft", "top", "hang", "--once")
	require.Contains(t, table, "4 ranks on 2 hosts")
	for rank, host := range []string{c.hosts[0], c.hosts[0], c.hosts[1], c.hosts[1]} {
		line := strings.Fields(table[strings.Index(table, "\n"+string(rune('0'+rank))+" "):])
		require.Equal(t, []string{host, "stuck"}, line[1:3], table)
	}
	require.Contains(t, table, "Recv from 2, tag 5, at main.go:15")

	require.NoError(t, cmd.Process.Signal(syscall.SIGQUIT))
	report("weft: what the ranks do\n")
	time.Sleep(100 * time.Millisecond) // no moment would do, if it ended
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0)), "the job goes on")
}
