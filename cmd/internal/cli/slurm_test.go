package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slurmConf makes a cluster of several nodes of this machine alone. The nodes follow.
const slurmConf = `ClusterName=weft
SlurmctldHost=localhost
SlurmctldPort=%[2]d
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation=%[1]s
SlurmdSpoolDir=%[1]s/spool-%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd-%%n.pid
PartitionName=all Nodes=ALL Default=YES State=UP
`

// A slurm is a Slurm cluster on this machine.
type slurm struct {
	t   *testing.T
	dir string
}

// newSlurm starts a cluster of n nodes with 4 processors each, or skips the test where that is not wanted.
func newSlurm(t *testing.T, n int) *slurm {
	if os.Getenv("WEFT_TEST_SLURM") == "" {
		t.Skip("needs root, slurm-wlm and munge: set WEFT_TEST_SLURM=1, as .ci/run does")
	}
	s := &slurm{t, t.TempDir()}
	require.NoError(t, os.Chmod(s.dir, 0o755))
	hosts := "127.0.0.1 localhost"
	for i := range n {
		hosts += fmt.Sprintf(" n%d", i+1)
	}
	require.NoError(t, os.WriteFile(s.dir+"/hosts", []byte(hosts+"\n"), 0o644))
	require.NoError(t, os.WriteFile(s.dir+"/key", bytes.Repeat([]byte("weft"), 32), 0o600))
	ports := freePorts(t, n+1)
	conf := fmt.Sprintf(slurmConf, s.dir, ports[n])
	for i := range n {
		conf += fmt.Sprintf("NodeName=n%d NodeHostname=localhost NodeAddr=127.0.0.1 Port=%d CPUs=4\n", i+1, ports[i])
	}
	require.NoError(t, os.WriteFile(s.dir+"/slurm.conf", []byte(conf), 0o644))
	t.Setenv("SLURM_CONF", s.dir+"/slurm.conf")
	build := exec.Command("go", "build", "-o", s.dir+"/", "../../weft", "../../../examples/ring")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.daemon("munged", "--foreground", "--force", "--key-file="+s.dir+"/key", "--socket="+s.dir+"/munge.sock",
		"--pid-file="+s.dir+"/munged.pid", "--seed-file="+s.dir+"/seed")
	require.Eventually(t, func() bool {
		_, err := os.Stat(s.dir + "/munge.sock")
		return err == nil
	}, 2*time.Minute, 20*time.Millisecond, "munged does not come up")
	s.daemon("slurmctld", "-D")
	for i := range n {
		s.daemon("unshare", "--mount", "sh", "-c", fmt.Sprintf(
			"mount --bind %s/hosts /etc/hosts && exec slurmd -D -N n%d", s.dir, i+1))
	}
	require.Eventually(t, func() bool {
		out, _ := exec.Command("sinfo", "--noheader", "--format=%T %D").Output()
		return strings.TrimSpace(string(out)) == fmt.Sprint("idle ", n)
	}, 2*time.Minute, 50*time.Millisecond, "the nodes do not come up")
	// A node that has only just registered may kill its first step.
	require.Eventually(t, func() bool {
		status, _, _ := s.run("srun", fmt.Sprint("--nodes=", n), "true")
		return status == 0
	}, 2*time.Minute, 50*time.Millisecond, "the nodes run no step")
	return s
}

// freePorts are n ports that nothing listens at, below those that the system gives to whoever asks for any. Two
// processes that ask at the same time get different ones.
func freePorts(t *testing.T, n int) (ports []int) {
	first := os.Getpid() % 1000 * 10
	for i := range 10000 {
		port := 20000 + (first+i)%10000
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		defer l.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatal("no free ports")
	return nil
}

// daemon runs a program until the test ends.
func (s *slurm) daemon(command ...string) {
	cmd := exec.Command(command[0], command[1:]...)
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%s.%d.log", command[0], time.Now().UnixNano())))
	require.NoError(s.t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		log.Close()
	})
}

// run runs a command in the cluster's folder, and returns its status, its output and its errors.
func (s *slurm) run(command ...string) (status int, out, errs string) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = s.dir, &stdout, &stderr, time.Minute
	cmd.Run()
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func TestSlurm(t *testing.T) {
	s := newSlurm(t, 4)
	ends := func(command ...string) string {
		t.Helper()
		status, out, errs := s.run(command...)
		require.Zero(t, status, "%q: %s%s", command, out, errs)
		return out
	}
	sleep := fmt.Sprint("sleep 78.", os.Getpid()) // as nothing else on this machine does
	gone := func() bool {
		out, _ := exec.Command("pgrep", "-x", "-f", sleep).Output()
		return len(out) == 0
	}
	withSecret := func(t *testing.T) {
		require.NoError(t, os.WriteFile(s.dir+"/secret", bytes.Repeat([]byte("s"), 32), 0o600))
		t.Setenv("WEFT_SECRET_FILE", s.dir+"/secret")
	}
	const token = "rank 7 of 8 has the token from rank 6"
	t.Run("weft run in an allocation", func(t *testing.T) {
		status, out, errs := s.run("salloc", "-Q", "-N4", "-n8", "./weft", "run", "--report-bindings", "./ring")
		require.Zero(t, status, errs)
		require.Contains(t, out, token)
		require.Regexp(t, `weft: rank 7: pid \d+ on n4, `, errs)
	})
	t.Run("one step for all agents", func(t *testing.T) {
		out := ends("salloc", "-Q", "-N4", "--ntasks-per-node=2", "./weft", "run", "-l", "sh", "-c",
			"echo $SLURMD_NODENAME in step $SLURM_STEP_ID")
		for rank := range 8 {
			require.Contains(t, out, fmt.Sprintf("[%d] n%d in step 0\n", rank, rank/2+1))
		}
	})
	t.Run("output at full speed", func(t *testing.T) {
		out := ends("salloc", "-Q", "-N2", "-n2", "./weft", "run", "sh", "-c",
			"yes 0123456789abcde | head -c 8000000")
		require.Equal(t, 1000000, strings.Count(out, "0123456789abcde\n"))
	})
	t.Run("weft run in a batch job", func(t *testing.T) {
		ends("sbatch", "-Q", "--wait", "-N4", "-n8", "--output=batch", "--wrap", "./weft run ./ring")
		out, err := os.ReadFile(s.dir + "/batch")
		require.NoError(t, err)
		require.Contains(t, string(out), token)
	})
	t.Run("srun with PMI", func(t *testing.T) {
		require.Contains(t, ends("srun", "-Q", "-N4", "-n8", "--mpi=pmi2", "./ring"), token)
	})
	t.Run("srun without PMI", func(t *testing.T) {
		withSecret(t)
		require.Contains(t, ends("srun", "-Q", "-N4", "-n8", "--mpi=none", "./ring"), token)
	})
	srun := func(ranks int, pmi string, command ...string) string {
		return ends(slices.Concat([]string{"srun", "-Q", "-N" + fmt.Sprint(min(4, ranks)), fmt.Sprint("-n", ranks),
			"--mpi=" + pmi}, command)...)
	}
	everywhere(t, rankPrograms(t, s.dir),
		way{"weft run", func(t *testing.T, ranks int, command ...string) string {
			return ends(slices.Concat([]string{"salloc", "-Q", "-N" + fmt.Sprint(min(4, ranks)), fmt.Sprint("-n", ranks),
				"./weft", "run"}, command)...)
		}},
		way{"srun with PMI", func(t *testing.T, ranks int, command ...string) string {
			return srun(ranks, "pmi2", command...)
		}},
		way{"srun without PMI", func(t *testing.T, ranks int, command ...string) string {
			withSecret(t)
			return srun(ranks, "none", command...)
		}})
	t.Run("a rank that fails", func(t *testing.T) {
		status, _, errs := s.run("salloc", "-Q", "-N4", "-n4", "./weft", "run", "sh", "-c",
			"if [ $WEFT_RANK = 2 ]; then kill -9 $$; fi; exec "+sleep)
		require.Equal(t, 137, status, errs)
		require.Contains(t, errs, "weft: rank 2 on n3 (pid ")
		require.Eventually(t, gone, 2*2*time.Minute, 50*time.Millisecond, "ranks are left")
	})
	t.Run("a rank that the job goes on without", func(t *testing.T) {
		buildSurvivor(t, s.dir)
		status, out, errs := s.run("salloc", "-Q", "-N4", "-n4", "./weft", "run", "--survive", "./survivor", "3", "2")
		require.Equal(t, 3, status, errs)
		require.Equal(t, 3, strings.Count(out, "went on with 3"), "%s%s", out, errs)
	})
	survives := func(t *testing.T, pmi string) {
		for _, victim := range []string{"2", "0"} {
			// When a task has been killed, srun may lose the last lines of another that it passes on.
			status, _, errs := s.run("srun", "-Q", "-N4", "-n4", "--kill-on-bad-exit=0", "--mpi="+pmi,
				"--output="+s.dir+"/survived.%t", "./survivor", "3", victim)
			require.Equal(t, 137, status, errs)
			var out string
			for task := range 4 {
				text, err := os.ReadFile(fmt.Sprint(s.dir, "/survived.", task))
				require.NoError(t, err)
				out += string(text)
			}
			require.Equal(t, 3, strings.Count(out, "went on with 3"), "without %s: %s%s", victim, out, errs)
		}
	}
	t.Run("srun with PMI goes on without a rank", func(t *testing.T) {
		buildSurvivor(t, s.dir)
		t.Setenv("WEFT_SURVIVE", "1")
		survives(t, "pmi2")
		// Those that are left do not end by themselves, however late and in whatever order srun kills them.
		status, out, errs := s.run("srun", "-Q", "-N4", "-n4", "--kill-on-bad-exit=1", "--mpi=pmi2", "./survivor",
			"0", "2")
		require.Positive(t, status, errs)
		require.NotContains(t, out, "went on with", errs)
	})
	t.Run("srun without PMI goes on without a rank", func(t *testing.T) {
		withSecret(t)
		t.Setenv("WEFT_SURVIVE", "1")
		survives(t, "none")
	})
	t.Run("an agent that is killed", func(t *testing.T) {
		status, _, errs := s.run("salloc", "-Q", "-N4", "-n4", "./weft", "run", "sh", "-c",
			"if [ $WEFT_RANK = 1 ]; then kill -9 $PPID; fi; exec "+sleep)
		require.Equal(t, 1, status, errs)
		require.Contains(t, errs, "weft: host n2 is lost: the connection to its agent has ended")
		require.Eventually(t, gone, 2*2*time.Minute, 50*time.Millisecond, "ranks are left")
	})
	t.Run("a job that starts again", func(t *testing.T) {
		status, out, errs := s.run("salloc", "-Q", "-N4", "-n4", "./weft", "run", "--restarts", "2", "sh", "-c",
			"if [ $WEFT_RANK = 2 -a $WEFT_RESTARTED = 0 ]; then kill -9 $$; fi; [ $WEFT_RESTARTED = 1 ] || exec "+sleep+"; "+
				"echo rank $WEFT_RANK")
		require.Zero(t, status, errs)
		require.Equal(t, 4, strings.Count(out, "rank "), out)
		require.Contains(t, errs, "weft: the job starts again: restart 1 of 2")
	})
	t.Run("a job that starts again without a node", func(t *testing.T) {
		status, out, errs := s.run("salloc", "-Q", "-N4", "-n4", "./weft", "run", "--restarts", "1", "--min", "2", "sh",
			"-c", "if [ $WEFT_RANK = 1 -a $WEFT_RESTARTED = 0 ]; then kill -9 $PPID; fi; [ $WEFT_RESTARTED = 1 ] || "+
				"exec "+sleep+"; echo $SLURMD_NODENAME of $WEFT_SIZE")
		require.Zero(t, status, errs)
		for _, node := range []string{"n1", "n3", "n4"} {
			require.Contains(t, out, node+" of 3\n", errs)
		}
		require.Contains(t, errs, "weft: host n2 is lost: the connection to its agent has ended")
		require.Contains(t, errs, "weft: 3 ranks in place of 4, for there are 3 slots")
	})
	t.Run("a job that starts again after srun has ended", func(t *testing.T) {
		// Rank 1 kills what srun has started on its node. srun may take that for the loss of all nodes.
		status, out, errs := s.run("salloc", "-Q", "-N4", "-n4", "./weft", "run", "--restarts", "1", "--min", "2", "sh",
			"-c", "if [ $WEFT_RANK = 1 -a $WEFT_RESTARTED = 0 ]; then "+
				"kill -9 $(awk '/^PPid:/ { print $2 }' /proc/$PPID/status); fi; [ $WEFT_RESTARTED = 1 ] || exec "+sleep+"; "+
				"echo a rank of $WEFT_SIZE")
		require.Zero(t, status, errs)
		ranks := 4
		if strings.Contains(errs, "weft: host n2 is lost: ") {
			ranks = 3
		} else {
			require.Contains(t, errs, "weft: all hosts are lost: srun has ended (srun: ")
		}
		require.Equal(t, ranks, strings.Count(out, fmt.Sprintf("a rank of %d\n", ranks)), "%s%s", out, errs)
	})
	// srun would take no more input after 1,024 reads of it, if a task had ended.
	t.Run("much input beside a node without ranks", func(t *testing.T) {
		require.Equal(t, "4000000\n", ends("salloc", "-Q", "-N4", "-n4", "sh", "-c",
			"head -c 4000000 /dev/zero | ./weft run -n 2 sh -c '[ $WEFT_RANK = 1 ] || wc -c'"))
	})
	t.Run("much input beside a node that is lost", func(t *testing.T) {
		status, out, errs := s.run("salloc", "-Q", "-N4", "-n4", "sh", "-c", "head -c 4000000 /dev/zero | ./weft run --survive "+
			"sh -c 'case $WEFT_RANK in 1) echo $PPID >pid.part; mv pid.part pid; kill -9 $PPID;; "+
			"0) until [ -e pid ] && ! kill -0 $(cat pid); do sleep 0.05; done; wc -c;; esac'")
		require.Equal(t, 3, status, errs)
		require.Equal(t, "4000000\n", out, errs)
	})
	t.Run("an allocation that has ended", func(t *testing.T) {
		environment := ends("salloc", "-Q", "-N2", "-n2", "env")
		var set []string
		for line := range strings.Lines(environment) {
			if strings.HasPrefix(line, "SLURM_") {
				set = append(set, strings.TrimSpace(line))
			}
		}
		status, _, errs := s.run(append(append([]string{"env"}, set...), "./weft", "run", "true")...)
		require.Equal(t, 1, status, errs)
		require.Regexp(t, `^weft: host n1: the connection to its agent has ended \(srun: .*[Jj]ob.*\)\n`, errs)
	})
}
