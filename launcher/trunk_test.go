package launcher

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func init() {
	modes["srun"] = beSrun
	modes["task"] = func() {
		os.Setenv(modeVariable, "agent") // the child's
		check(AgentMain("SLURM_PROCID"))
	}
}

// beSrun starts the agents of several hosts, as srun does: each gets the input, and their output mixes. When a
// task ends before the input, it ends all, as srun may.
func beSrun() {
	var inputs []io.Writer
	var tasks []*exec.Cmd
	ended := make(chan string)
	for i, host := range strings.Split(os.Args[1], ",") {
		task := exec.Command(os.Args[2], os.Args[3:]...)
		task.Env = append(os.Environ(), modeVariable+"=task", fmt.Sprint("SLURM_PROCID=", i), "HOST="+host)
		task.Stdout, task.Stderr = os.Stdout, os.Stderr
		in, err := task.StdinPipe()
		check(err)
		check(task.Start())
		inputs, tasks = append(inputs, in), append(tasks, task)
		go func() {
			task.Wait()
			ended <- fmt.Sprintf("srun: error: %s: task %d: %v", host, i, task.ProcessState)
		}()
	}
	inputEnded := make(chan struct{})
	go func() {
		io.Copy(io.MultiWriter(inputs...), os.Stdin)
		close(inputEnded)
		for _, in := range inputs {
			in.(io.Closer).Close()
		}
	}()
	for range inputs {
		what := <-ended
		select {
		case <-inputEnded:
			continue
		default:
		}
		fmt.Fprintf(os.Stderr, "%s\nsrun: error: the other tasks are ended\n", what)
		for _, task := range tasks {
			task.Process.Kill()
		}
		return
	}
}

// onSlurm has the ranks of a job run behind agents that one command has started.
func onSlurm(hosts ...Host) func(*Job) {
	return func(j *Job) {
		j.Hosts = hosts
		j.AgentPath, _ = absolute(os.Args[0])
		j.Starter = []string{"env", modeVariable + "=srun", j.AgentPath, "{hosts}"}
	}
}

func TestJobOnASlurm(t *testing.T) {
	b := start(t, 4, "barrier", onSlurm(Host{"a", 2}, Host{"b", 2}))
	require.NoError(t, <-b.done, b.stderr())
	require.Empty(t, marked(b.mark), "processes are left behind")
}

// restartOfASlurm runs a job of three hosts under srun, whose rank 1 kills a process in its first start, and
// returns what each rank of the second start says.
func restartOfASlurm(t *testing.T, victim string) (b *bench, second string) {
	b = start(t, 3, "", func(j *Job) {
		onSlurm(Host{"a", 1}, Host{"b", 1}, Host{"c", 1})(j)
		j.Restarts, j.Min = 1, 1
		j.Apps = []App{{Ranks: 3, Program: "sh", Args: []string{"-c",
			`if [ $WEFT_RESTARTED = 1 ]; then echo $HOST of $WEFT_SIZE; exit; fi
			[ $WEFT_RANK != 1 ] || kill -9 ` + victim + `; exec sleep 60`}}}
	})
	text, err := io.ReadAll(b.out)
	require.NoError(t, err)
	require.NoError(t, <-b.done, b.stderr())
	require.Empty(t, marked(b.mark), "processes are left behind")
	return b, string(text)
}

// An agent that ends is the only one, and its host is left out of the next start. A job on fewer hosts goes on.
func TestRestart_AnAgentOfASlurmEnds(t *testing.T) {
	b, text := restartOfASlurm(t, "$PPID")
	require.Contains(t, text, "a of 2\n")
	require.Contains(t, text, "c of 2\n")
	require.Contains(t, b.stderr(), "weft: host b is lost: the connection to its agent has ended (rank 1)\n")
}

// If the starter ends its agents, all hosts are named, with the starter's reason, and the next start is on all.
func TestRestart_ASlurmEnds(t *testing.T) {
	b, text := restartOfASlurm(t, "$(awk '/^PPid:/ { print $2 }' /proc/$PPID/status)")
	for _, host := range []string{"a", "b", "c"} {
		require.Contains(t, text, host+" of 3\n")
	}
	require.Contains(t, b.stderr(),
		"weft: all hosts are lost: env has ended (srun: error: b: task 1: signal: killed)\n")
}
