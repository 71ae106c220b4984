package cli

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bootstrapConf makes a Grid Engine of this test alone.
const bootstrapConf = `admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params %[1]s/sge/cell/common;%[1]s/spool/qmaster
binary_path /usr/sbin
qmaster_spool_dir %[1]s/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
`

// parallelConf is an environment for weft run: it gives two slots on each host, and lets qrsh -inherit start
// agents there. The accounting has one record of a job, with the status of its script, and none of its agents.
const parallelConf = `pe_name weft
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule 2
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary TRUE
qsort_args NONE
`

// A gridEngine is a cluster whose hosts are node1, node2 and so on, with Grid Engine's daemons; its master is
// on the head.
type gridEngine struct{ *cluster }

// newGridEngine starts a Grid Engine of n hosts with 4 slots each, or skips the test where that is not wanted.
func newGridEngine(t *testing.T, n int) *gridEngine {
	if os.Getenv("WEFT_TEST_SGE") == "" {
		t.Skip("needs root, namespaces, sshd and Grid Engine: set WEFT_TEST_SGE=1, as .ci/run does")
	}
	t.Setenv("WEFT_TEST_NAMESPACES", "1")
	g := &gridEngine{newCluster(t, n)}
	names := "10.77.0.254 head\n"
	for i, addr := range g.hosts {
		names += fmt.Sprintf("%s node%d\n", addr, i+1)
	}
	for i := range g.hosts {
		g.hostsFile(i, names)
	}
	g.names = append(g.names, g.head)
	g.hostsFile(n, names)
	g.names = g.names[:n]
	for name, value := range map[string]string{"SGE_ROOT": g.dir + "/sge", "SGE_CELL": "cell", "SGE_ND": "1",
		"SGE_QMASTER_PORT": "16444", "SGE_EXECD_PORT": "16445"} {
		t.Setenv(name, value)
	}
	g.startMaster()
	for i := range g.hosts {
		g.must(g.on(g.names[i], fmt.Sprint("node", i+1), "sh", "-c", "sge_execd >/dev/null 2>&1 &")...)
	}
	up := func() bool { return strings.Count(g.master("qhost"), "lx-") == n }
	if !assert.Eventually(t, up, 10*time.Minute, 200*time.Millisecond, "the hosts do not come up") {
		for i := range g.hosts {
			said, _ := os.ReadFile(fmt.Sprintf("%s/spool/node%d/messages", g.dir, i+1))
			t.Logf("node%d: %s", i+1, said)
		}
		t.FailNow()
	}
	return g
}

// startMaster sets the cell up, starts its master, and tells it of the hosts.
func (g *gridEngine) startMaster() {
	for _, dir := range []string{"/sge/cell/common", "/spool/qmaster/job_scripts"} {
		require.NoError(g.t, os.MkdirAll(g.dir+dir, 0o755))
	}
	for _, part := range []string{"/var/lib/gridengine/bin", "/var/lib/gridengine/lib", "/var/lib/gridengine/utilbin",
		"/usr/share/gridengine/util"} {
		require.NoError(g.t, os.Symlink(part, g.dir+"/sge"+part[strings.LastIndex(part, "/"):]))
	}
	conf, err := os.ReadFile("/usr/share/gridengine/default-configuration")
	require.NoError(g.t, err)
	conf = regexp.MustCompile(`(?m)^(min_[ug]id).*`).ReplaceAll(conf, []byte("$1 0"))
	conf = regexp.MustCompile(`(?m)^execd_spool_dir.*`).ReplaceAll(conf, []byte("execd_spool_dir "+g.dir+"/spool"))
	// A host ends all processes on this machine that have a group of a job of its own.
	groups := 100_000 + os.Getpid()%10_000*100
	conf = regexp.MustCompile(`(?m)^gid_range.*`).ReplaceAll(conf, fmt.Appendf(nil, "gid_range %d-%d", groups, groups+99))
	// The accounting has a job as soon as that has ended.
	conf = regexp.MustCompile(`\bflush_time=`).ReplaceAll(conf, []byte("accounting_flush_time=0:0:0 $0"))
	g.write("sge/cell/common/bootstrap", fmt.Sprintf(bootstrapConf, g.dir))
	g.write("sge/cell/common/act_qmaster", "head\n")
	g.write("configuration", string(conf))
	g.write("parallel", parallelConf)
	g.write("group", "group_name @nodes\nhostlist NONE\n")
	const tools, data = "/usr/lib/gridengine/", "/usr/share/gridengine/util/resources/"
	g.master(tools+"spoolinit", "classic", "libspoolc", g.dir+"/sge/cell/common;"+g.dir+"/spool/qmaster", "init")
	g.master(tools+"spooldefaults", "configuration", g.dir+"/configuration")
	g.master(tools+"spooldefaults", "complexes", data+"centry")
	g.master(tools+"spooldefaults", "usersets", data+"usersets")
	g.master(tools+"spooldefaults", "managers", "root")
	g.must(g.on(g.head, "head", "sh", "-c", "sge_qmaster >/dev/null 2>&1 &")...)
	require.Eventually(g.t, func() bool {
		command := g.on(g.head, "head", "timeout", "5", "qconf", "-sh")
		return exec.Command(command[0], command[1:]...).Run() == nil
	}, 2*time.Minute, 200*time.Millisecond, "the master does not come up")
	g.master("qconf", "-as", "head")
	g.master("qconf", "-Ahgrp", g.dir+"/group")
	for i := range g.hosts {
		g.master("qconf", "-ah", fmt.Sprint("node", i+1))
		g.master("qconf", "-aattr", "hostgroup", "hostlist", fmt.Sprint("node", i+1), "@nodes")
	}
	g.master("qconf", "-Ap", g.dir+"/parallel")
	g.alter("-sq", "-Aq", "qname all.q", "hostlist @nodes", "slots 4", "pe_list weft", "shell /bin/sh",
		"load_thresholds NONE", "tmpdir "+g.dir+"/tmp")
	g.alter("-ssconf", "-Msconf", "schedule_interval 0:0:1", "flush_submit_sec 1", "flush_finish_sec 1")
}

// alter changes values of what an option of qconf shows, and gives it back by another.
func (g *gridEngine) alter(show, set string, values ...string) {
	text := g.master("qconf", show)
	for _, value := range values {
		name, _, _ := strings.Cut(value, " ")
		text = regexp.MustCompile(`(?m)^`+name+` .*`).ReplaceAllString(text, value)
	}
	g.write("altered", text)
	g.master("qconf", set, g.dir+"/altered")
}

// on is a command on a host, which has a name of its own.
func (g *gridEngine) on(namespace, host string, command ...string) []string {
	return append([]string{"ip", "netns", "exec", namespace, "unshare", "--uts", "sh", "-c",
		`PATH=$PATH:/usr/sbin; hostname $0; exec "$@"`, host}, command...)
}

// master runs a command on the head.
func (g *gridEngine) master(command ...string) string {
	g.t.Helper()
	return g.must(g.on(g.head, "head", append([]string{"timeout", "60"}, command...)...)...)
}

// recordedStatus is in what qacct says of a job.
var recordedStatus = regexp.MustCompile(`(?m)^exit_status +(\d+)`)

// run runs a script as a job of two slots on each host. It returns the status that Grid Engine's accounting has
// for it, and what it has written. meanwhile is called when the job has been submitted.
func (g *gridEngine) run(script string, meanwhile func()) (status int, out string) {
	g.write("job", "#!/bin/sh\ncd "+g.dir+"\n"+script+"\n")
	os.Remove(g.dir + "/out")
	job := strings.TrimSpace(g.master("qsub", "-terse", "-V", "-pe", "weft", fmt.Sprint(2*len(g.hosts)), "-j", "y",
		"-o", g.dir+"/out", g.dir+"/job"))
	meanwhile()
	// On a busy machine qsub -sync y may say of a job that has run that it could not, and end with status 0.
	qacct := g.on(g.head, "head", "qacct", "-j", job)
	require.Eventually(g.t, func() bool {
		record, _ := exec.Command(qacct[0], qacct[1:]...).Output() // fails before the job has ended
		found := recordedStatus.FindSubmatch(record)
		if found == nil {
			return false
		}
		var err error
		status, err = strconv.Atoi(string(found[1]))
		return assert.NoError(g.t, err)
	}, 5*time.Minute, 200*time.Millisecond, "job "+job+" does not end")
	text, _ := os.ReadFile(g.dir + "/out")
	return status, string(text)
}

func TestGridEngine(t *testing.T) {
	g := newGridEngine(t, 4)
	none := func() {}
	begun := func() {
		require.Eventually(t, func() bool {
			for i := range g.hosts {
				if len(g.sleepers(i)) != 2 {
					return false
				}
			}
			return true
		}, 2*time.Minute, 50*time.Millisecond, "the ranks do not come up")
	}
	gone := func() {
		t.Helper()
		for i := range g.hosts {
			g.gone(i)
		}
	}
	t.Run("messages", func(t *testing.T) {
		status, out := g.run("exec ./weft run --report-bindings ./ring", none)
		require.Zero(t, status, out)
		require.Contains(t, out, "rank 7 of 8 has the token from rank 6")
		require.Regexp(t, `weft: rank 7: pid \d+ on node\d, `, out)
		gone()
	})
	everywhere(t, rankPrograms(t, g.dir), way{"weft run", func(t *testing.T, ranks int, command ...string) string {
		status, out := g.run(fmt.Sprintf("exec ./weft run -n %d --ppn %s %s", ranks, perHost(ranks),
			strings.Join(command, " ")), none)
		require.Zero(t, status, out)
		return out
	}})
	t.Run("a rank that fails", func(t *testing.T) {
		status, out := g.run("exec ./weft run sh -c 'if [ $WEFT_RANK = 5 ]; then exit 3; fi; exec sleep 77'", none)
		require.Equal(t, 3, status, out)
		require.Regexp(t, `weft: rank 5 on node\d \(pid \d+, sh\) exited with status 3`, out)
		gone()
	})
	t.Run("an agent that is killed", func(t *testing.T) {
		_, out := g.run("exec ./weft run sleep 77", func() { // Grid Engine ends such a job by itself, too
			begun()
			g.kill(g.names[2], func(line string) bool { return strings.HasPrefix(line, g.dir+"/weft agent") })
		})
		require.Contains(t, out, "weft: host node3 is lost")
		gone()
	})
	t.Run("a job that is deleted", func(t *testing.T) {
		_, out := g.run("exec ./weft run sleep 77", func() {
			begun()
			g.master("qdel", "-u", "root")
		})
		require.NotContains(t, out, "is lost", out)
		gone()
	})
}
