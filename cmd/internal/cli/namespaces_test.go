package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A cluster is some hosts on this machine: network namespaces with an address and an sshd each, and one more
// namespace, the head, from which they are reached.
type cluster struct {
	t     testing.TB
	dir   string
	hosts []string // addresses
	names []string // of the namespaces
	head  string
	limit time.Duration // of a job
}

// newCluster makes a cluster of n hosts, or skips the test where that is not wanted. What the hosts run they
// run in the command within, in which {host} stands for the host's number.
func newCluster(t testing.TB, n int, within ...string) *cluster {
	if os.Getenv("WEFT_TEST_NAMESPACES") == "" {
		t.Skip("needs root, namespaces and sshd: set WEFT_TEST_NAMESPACES=1, as .ci/run does")
	}
	c := &cluster{t: t, dir: t.TempDir(), head: fmt.Sprintf("weft%d-head", os.Getpid()),
		limit: 5 * time.Minute}
	require.NoError(t, os.Chmod(c.dir, 0o755))
	c.must("go", "build", "-o", c.dir+"/", "../../weft", "../../../examples/ring")
	c.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", c.dir+"/key")
	c.must("cp", c.dir+"/key.pub", c.dir+"/authorized_keys")
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	require.NoError(t, os.Mkdir(c.dir+"/own", 0o755))
	// Jobs of other tests are not to be seen: their sockets and copies are in another folder.
	require.NoError(t, os.Mkdir(c.dir+"/tmp", 0o755))
	require.NoError(t, os.Chmod(c.dir+"/tmp", 0o777|os.ModeSticky))
	t.Setenv("TMPDIR", c.dir+"/tmp")
	t.Setenv("XDG_RUNTIME_DIR", "")
	c.write("ssh_config", "IdentityFile "+c.dir+"/key\nUserKnownHostsFile "+c.dir+"/known_hosts\n"+
		"StrictHostKeyChecking accept-new\nBatchMode yes\n")
	// What this machine's user has a shell do at its start is no part of a test, and no time of a launcher's.
	c.write("sshd_config",
		"HostKey "+c.dir+"/key\nAuthorizedKeysFile "+c.dir+"/authorized_keys\nPidFile none\n"+
			"StrictModes no\nUsePAM no\nPermitRootLogin yes\nSetEnv HOME="+c.dir+"/own TMPDIR="+c.dir+"/tmp\n")
	c.addNamespace(c.head)
	c.must("ip", "-n", c.head, "link", "add", "bridge", "type", "bridge")
	c.must("ip", "-n", c.head, "addr", "add", "10.77.0.254/24", "dev", "bridge")
	c.must("ip", "-n", c.head, "link", "set", "bridge", "up")
	for i := range n {
		c.addHost(fmt.Sprintf("weft%d-%d", os.Getpid(), i), fmt.Sprintf("10.77.0.%d", i+1),
			fmt.Sprintf("port%d", i), strings.ReplaceAll(strings.Join(within, " "), "{host}", fmt.Sprint(i)))
	}
	return c
}

func (c *cluster) addNamespace(name string) {
	c.must("ip", "netns", "add", name)
	c.t.Cleanup(func() {
		for pid := range strings.FieldsSeq(c.must("ip", "netns", "pids", name)) {
			exec.Command("kill", "-9", pid).Run()
		}
		c.must("ip", "netns", "del", name)
	})
	c.must("ip", "-n", name, "link", "set", "lo", "up")
}

func (c *cluster) addHost(name, addr, port, within string) {
	c.addNamespace(name)
	// As on a host with Docker: an interface that leads to no other host, and has one address everywhere.
	c.must("ip", "-n", name, "link", "add", "docker0", "type", "bridge")
	c.must("ip", "-n", name, "addr", "add", "172.17.0.1/16", "dev", "docker0")
	c.must("ip", "-n", name, "link", "set", "docker0", "up")
	c.must("ip", "-n", c.head, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
	c.must("ip", "-n", c.head, "link", "set", port, "master", "bridge", "up")
	c.must("ip", "-n", name, "addr", "add", addr+"/24", "dev", "eth0")
	c.must("ip", "-n", name, "link", "set", "eth0", "up")
	// The folder "own" is another one on each host.
	sshd := exec.Command("ip", "netns", "exec", name, "sh", "-c",
		"mount -t tmpfs none "+c.dir+"/own && exec "+within+" /usr/sbin/sshd -D -e -f "+c.dir+"/sshd_config")
	require.NoError(c.t, sshd.Start())
	c.t.Cleanup(func() { sshd.Process.Kill(); sshd.Wait() })
	c.hosts, c.names = append(c.hosts, addr), append(c.names, name)
	require.Eventually(c.t, func() bool {
		return exec.Command("ip", "netns", "exec", c.head, "bash", "-c",
			"echo >/dev/tcp/"+addr+"/22").Run() == nil
	}, 2*time.Minute, 50*time.Millisecond, "sshd of %s does not answer", addr)
}

func (c *cluster) write(name, text string) {
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

// must runs a command and returns its output.
func (c *cluster) must(command ...string) string {
	c.t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	require.NoError(c.t, err, "%q: %s", command, out)
	return string(out)
}

// A clusterJob is a weft run of all hosts of a cluster.
type clusterJob struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	fanOut   int // of --fan-out, if it is given
}

// start runs a program, after more options perhaps, with some ranks on each host. It is started from the head.
func (c *cluster) start(each int, program ...string) *clusterJob {
	list := strings.Join(c.hosts, fmt.Sprintf(":%d,", each)) + fmt.Sprintf(":%d", each)
	args := append([]string{"netns", "exec", c.head, c.dir + "/weft", "run", "--host", list,
		"--starter", "ssh -F " + c.dir + "/ssh_config {host}"}, program...)
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	c.t.Cleanup(cancel)
	j := &clusterJob{cmd: exec.CommandContext(ctx, "ip", args...)}
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.err
	j.cmd.WaitDelay = 5 * time.Second
	require.NoError(c.t, j.cmd.Start())
	return j
}

func (j *clusterJob) wait() int {
	j.cmd.Wait()
	return j.cmd.ProcessState.ExitCode()
}

// sleepers are the processes of a job's ranks on a host, which sleep for a time that nothing else does.
func (c *cluster) sleepers(host int) (pids []string) {
	for pid := range strings.FieldsSeq(c.must("ip", "netns", "pids", c.names[host])) {
		if text, _ := os.ReadFile("/proc/" + pid + "/cmdline"); string(text) == "sleep\x0077\x00" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// begun waits until every host runs its ranks.
func (c *cluster) begun(each int) {
	require.Eventually(c.t, func() bool {
		for i := range c.hosts {
			if len(c.sleepers(i)) != each {
				return false
			}
		}
		return true
	}, 2*time.Minute, 20*time.Millisecond, "the ranks do not come up")
}

// gone waits until nothing of a job is left on a host.
func (c *cluster) gone(host int) {
	require.Eventually(c.t, func() bool {
		for pid := range strings.FieldsSeq(c.must("ip", "netns", "pids", c.names[host])) {
			text, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.HasPrefix(string(text), c.dir+"/weft") || string(text) == "sleep\x0077\x00" {
				return false
			}
		}
		return true
	}, 2*time.Minute, 50*time.Millisecond, "something is left on %s", c.hosts[host])
}

func TestHosts_MessagesOverSSH(t *testing.T) {
	c := newCluster(t, 4)
	j := c.start(2, c.dir+"/ring")
	require.Zero(t, j.wait(), j.err.String())
	require.Contains(t, j.out.String(), "rank 7 of 8 has the token from rank 6")
	j = c.start(2, "--fan-out", "2", "--verbose", c.dir+"/ring")
	require.Zero(t, j.wait(), j.err.String())
	require.Contains(t, j.out.String(), "rank 7 of 8 has the token from rank 6")
	require.Contains(t, j.err.String(), "host 10.77.0.4: the agent is up on "+hostname(t))
	require.Contains(t, j.err.String(), ", through the agent of 10.77.0.1\n")
	for i := range c.hosts {
		c.gone(i)
	}
}

func hostname(t *testing.T) string {
	name, err := os.Hostname()
	require.NoError(t, err)
	return name
}

// MPICH's launcher starts weft's programs on several hosts, too.
func TestHosts_MessagesUnderHydra(t *testing.T) {
	if _, err := exec.LookPath("mpiexec.hydra"); err != nil {
		t.Skip("needs mpiexec.hydra of MPICH")
	}
	c := newCluster(t, 4)
	for _, port := range [][]string{nil, {"-pmi-port"}} {
		require.Contains(t, c.hydra(port...)(t, 8, c.dir+"/ring"), "rank 7 of 8 has the token from rank 6", port)
	}
}

// hostsFile gives a host an /etc/hosts of its own. It returns the file, which can be added to.
func (c *cluster) hostsFile(host int, text string) string {
	dir := "/etc/netns/" + c.names[host] // which ip netns exec puts over /etc
	require.NoError(c.t, os.MkdirAll(dir, 0o755))
	c.t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(c.t, os.WriteFile(dir+"/hosts", []byte("127.0.0.1 localhost\n"+text), 0o644))
	return dir + "/hosts"
}

// each runs a command for each rank, as many on each host. They are started from the last one to rank 0, which
// is on the first host; meanwhile is called when all are started. It returns what they write, by rank.
func (c *cluster) each(ranks int, command func(rank int) []string, meanwhile func()) string {
	c.t.Helper()
	outputs := make([]bytes.Buffer, ranks)
	all := make([]*exec.Cmd, ranks)
	for rank := ranks - 1; rank >= 0; rank-- {
		args := append([]string{"netns", "exec", c.names[rank*len(c.names)/ranks], "timeout", "300"}, command(rank)...)
		all[rank] = exec.Command("ip", args...)
		all[rank].Stdout, all[rank].Stderr = &outputs[rank], &outputs[rank]
		require.NoError(c.t, all[rank].Start())
	}
	meanwhile()
	out := ""
	for rank, cmd := range all {
		require.NoError(c.t, cmd.Wait(), outputs[rank].String())
		out += outputs[rank].String()
	}
	return out
}

// With no launcher, ranks of several hosts reach each other at the addresses at which they reach rank 0. Its
// own host knows itself by a loopback address, as Debian's do.
func TestHosts_MessagesWithoutALauncher(t *testing.T) {
	c := newCluster(t, 4)
	c.write("secret", strings.Repeat("s", 32))
	c.hostsFile(0, "127.0.1.1 first\n")
	for i := range 3 {
		c.hostsFile(i+1, c.hosts[0]+" first\n")
	}
	out := c.each(8, func(rank int) []string {
		return []string{"env", fmt.Sprint("WEFT_RANK=", rank), "WEFT_SIZE=8", "WEFT_COORDINATOR=first:5700",
			"WEFT_SECRET_FILE=" + c.dir + "/secret", c.dir + "/ring"}
	}, func() {})
	require.Contains(t, out, "rank 7 of 8 has the token from rank 6")
}

// The pods of an Indexed Job of Kubernetes find rank 0 by the name of their headless service, which is known
// late. They are an ordinary user's, and the mounted secret is root's.
func TestHosts_MessagesInAnIndexedJob(t *testing.T) {
	c := newCluster(t, 4)
	c.write("secret", strings.Repeat("s", 32))
	require.NoError(t, os.Chown(c.dir+"/secret", 0, 2000))
	require.NoError(t, os.Chmod(c.dir+"/secret", 0o440))
	require.NoError(t, os.Chmod(filepath.Dir(c.dir), 0o755))
	const domain = ".ring.default.svc.cluster.local"
	var files []string
	for i := range c.hosts {
		pods := ""
		for rank := 2 * i; rank <= 2*i+1; rank++ {
			pods += fmt.Sprintf("%s ring-%d%s ring-%d\n", c.hosts[i], rank, domain, rank)
		}
		files = append(files, c.hostsFile(i, pods))
	}
	out := c.each(8, func(rank int) []string {
		return []string{"unshare", "--uts", "sh", "-c", fmt.Sprintf("hostname ring-%d; JOB_COMPLETION_INDEX=%[1]d "+
			"WEFT_SIZE=8 WEFT_SECRET_FILE=%s/secret exec setpriv --reuid=1000 --regid=1000 --groups=2000 %[2]s/ring",
			rank, c.dir)}
	}, func() {
		time.Sleep(time.Second) // the service's records come late
		for _, file := range files[1:] {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			fmt.Fprintf(f, "%s ring-0%s\n", c.hosts[0], domain)
			require.NoError(t, f.Close())
		}
	})
	require.Contains(t, out, "rank 7 of 8 has the token from rank 6")
}

// A host that ssh does not reach, or does not trust, is named in one line, and nothing is started.
func TestHosts_RefusedBySSH(t *testing.T) {
	c := newCluster(t, 2)
	c.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", c.dir+"/stranger")
	stranger := strings.Fields(c.must("cat", c.dir+"/stranger.pub"))
	c.write("changed", c.hosts[1]+" "+stranger[0]+" "+stranger[1]+"\n")
	const ssh = "ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes "
	for _, refused := range []struct{ host, starter, want string }{
		{"nosuch.invalid", ssh, "Could not resolve hostname nosuch.invalid"},
		{c.hosts[1], ssh + "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i " + c.dir + "/stranger",
			"Permission denied"},
		{c.hosts[1], ssh + "-o UserKnownHostsFile=" + c.dir + "/changed", "Host key verification failed"},
	} {
		j := &clusterJob{cmd: exec.Command("ip", "netns", "exec", c.head, c.dir+"/weft", "run", "--host",
			refused.host+":1", "--starter", refused.starter+" {host}", "true")}
		j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.err
		require.NoError(t, j.cmd.Start())
		require.Equal(t, 1, j.wait())
		require.Contains(t, j.err.String(), "weft: host "+refused.host+": ")
		require.Contains(t, j.err.String(), refused.want)
		require.Equal(t, 1, strings.Count(j.err.String(), "\n"), j.err.String())
	}
}

// A program that only the head has is copied to the hosts, and the copies do not stay.
func TestHosts_StageOverSSH(t *testing.T) {
	c := newCluster(t, 2)
	c.must("mv", c.dir+"/ring", c.dir+"/own/ring")
	j := c.start(1, c.dir+"/own/ring")
	require.Equal(t, 127, j.wait())
	require.Contains(t, j.err.String(), "host 10.77.0.2: there is no "+c.dir+"/own/ring")
	j = c.start(1, "--stage", c.dir+"/own/ring")
	require.Zero(t, j.wait(), j.err.String())
	require.Contains(t, j.out.String(), "rank 1 of 2 has the token from rank 0")
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "weft-*/*/ring"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A rank, an agent, the launcher or a link that goes ends the job, with its cause named and nothing left
// anywhere.
func TestHosts_FaultsOverSSH(t *testing.T) {
	c := newCluster(t, 3)
	kill := func(pattern string, host int) {
		for pid := range strings.FieldsSeq(c.must("ip", "netns", "pids", c.names[host])) {
			if text, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.HasPrefix(string(text), pattern) {
				c.must("kill", "-9", pid)
				return
			}
		}
		t.Fatalf("no process %q on host %d", pattern, host)
	}
	for _, fault := range []struct {
		name, cause string
		status      int
		strike      func(j *clusterJob)
	}{
		{"rank", "rank 1 on 10.77.0.2 ", 137, func(*clusterJob) { kill("sleep\x0077", 1) }},
		{"agent", "host 10.77.0.3 is lost", 1, func(*clusterJob) { kill(c.dir+"/weft\x00agent", 2) }},
		{"launcher", "", -1, func(j *clusterJob) { j.cmd.Process.Kill() }},
		{"link", "host 10.77.0.2 is lost: nothing was heard from it for 1.75s", 1, func(*clusterJob) {
			c.must("ip", "-n", c.head, "link", "set", "port1", "down") // that host has to notice by itself
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			j := c.start(1, "sleep", "77")
			c.begun(1)
			fault.strike(j)
			status := j.wait()
			require.Equal(t, fault.status, status, j.err.String())
			require.Contains(t, j.err.String(), fault.cause)
			for i := range c.hosts {
				c.gone(i)
			}
		})
	}
}
