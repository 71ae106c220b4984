package launcher

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/local"
)

const patience = 2 * time.Minute

// A bench runs one job of the test's own binary. Its processes carry a mark in their environment by which
// they are found.
type bench struct {
	t    *testing.T
	mark string
	in   *os.File // what the test writes to the job
	out  *bufio.Reader
	errs *os.File
	done chan error
}

func newMark(t *testing.T) string {
	return fmt.Sprintf("LAUNCHER_TEST_MARK=%d-%d-%s", os.Getpid(), time.Now().UnixNano(), t.Name())
}

// start runs ranks of a mode in this process.
func start(t *testing.T, n int, mode string, change func(*Job)) *bench {
	t.Helper()
	b := &bench{t: t, mark: newMark(t), done: make(chan error, 1)}
	inR, inW, err := os.Pipe()
	require.NoError(t, err)
	outR, outW, err := os.Pipe()
	require.NoError(t, err)
	b.in, b.out = inW, bufio.NewReader(outR)
	b.errs, err = os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	job := Job{
		Apps: []App{{Ranks: n, Program: os.Args[0]}}, Env: []string{modeVariable + "=" + mode, b.mark},
		In: inR, Out: outW, Err: b.errs,
	}
	if change != nil {
		change(&job)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	var over sync.WaitGroup
	over.Go(func() {
		err := Run(ctx, job)
		outW.Close()
		b.done <- err
	})
	t.Cleanup(func() {
		cancel()
		over.Wait()
		inR.Close()
		inW.Close()
		outR.Close()
		b.errs.Close()
	})
	return b
}

// pids reads until n processes have told their ids.
func (b *bench) pids(n int) []int {
	b.t.Helper()
	return readPIDs(b.t, b.out, n)
}

func readPIDs(t *testing.T, in *bufio.Reader, n int) []int {
	t.Helper()
	var pids []int
	for len(pids) < n {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		if text, ok := strings.CutPrefix(line, "pid "); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(text))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// failure waits for the job's end, checks that nothing of it is left, and returns why it failed.
func (b *bench) failure() *Failure {
	b.t.Helper()
	f := b.cause()
	require.Equal(b.t, "weft: "+f.Error()+"\n", b.stderr(), "one line says it")
	return f
}

// cause is failure of a job that may have said more than why it failed.
func (b *bench) cause() *Failure {
	b.t.Helper()
	err := <-b.done
	require.Empty(b.t, marked(b.mark), "processes are left behind")
	var f *Failure
	require.ErrorAs(b.t, err, &f)
	return f
}

// stderr is what the job has said, but for the line about shared cores.
func (b *bench) stderr() string {
	text, err := os.ReadFile(b.errs.Name())
	require.NoError(b.t, err)
	return regexp.MustCompile(`(?m)^weft: \d+ ranks share .*\n`).ReplaceAllString(string(text), "")
}

// marked are the living processes with the mark in their environment.
func marked(mark string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(env, append([]byte(mark), 0)) {
			continue
		}
		if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))); pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processState is the letter that the kernel gives a process, or 0 when there is none.
func processState(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return text[bytes.LastIndexByte(text, ')')+2]
}

// gone are the states of a process that has ended: none, or waiting for its parent to notice.
var gone = []byte{0, 'Z', 'X'}

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return bytes.IndexByte(gone, processState(pid)) >= 0 },
			patience, time.Millisecond)
	}
}

func TestRunKilledRankIsTheCause(t *testing.T) {
	b := start(t, 3, "init-wait", nil)
	pids := b.pids(3)
	require.NoError(t, syscall.Kill(pids[1], syscall.SIGKILL))
	f := b.failure()
	require.Equal(t, Killed, f.How)
	require.Equal(t, pids[1], f.PID)
	require.Equal(t, 137, ExitStatus(f))
	require.Regexp(t, `^rank \d on \S+ \(pid \d+, .*\) was killed by signal 9 \(SIGKILL\)$`, f.Error())
}

func TestRunNamesHowARankFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   string
		how    How
		rank   int
		status int
	}{
		{"unfinished", Unfinished, 1, 1}, {"no-init", Stranded, 1, 1}, {"abort", Aborted, 1, 7},
	} {
		t.Run(c.mode, func(t *testing.T) {
			f := start(t, 2, c.mode, nil).failure()
			require.Equal(t, []any{c.how, c.rank, c.status}, []any{f.How, f.Rank, ExitStatus(f)}, f.Error())
		})
	}
	t.Run("violate", func(t *testing.T) {
		f := start(t, 1, "violate", nil).failure()
		require.Equal(t, Disturbed, f.How)
		require.Contains(t, f.Error(), "cmd=nonsense")
	})
}

// What a rank has started, in its group or in a session of its own, does not outlive a job that ends well
// either.
func TestRunLeavesNoDaemonBehind(t *testing.T) {
	b := start(t, 1, "daemon", nil)
	family := b.pids(2)
	for _, pid := range family {
		require.NotContains(t, gone, processState(pid), "the process lives")
	}
	fmt.Fprintln(b.in, "go")
	require.NoError(t, <-b.done)
	requireGone(t, family)
}

// A rank that is stopped is said to be, and is the cause when another one gives up meanwhile.
func TestRunNamesAndEndsAStoppedRank(t *testing.T) {
	// Only SIGTERM together with SIGCONT ends it: SIGKILL would come too late.
	b := start(t, 2, "stop", func(j *Job) { j.Grace = time.Hour })
	pid := b.pids(1)[0]
	notice := fmt.Sprintf("(pid %d, %s) is stopped (SIGSTOP): the job waits for it; kill -CONT %[1]d continues it\n", pid, os.Args[0])
	require.Eventually(t, func() bool { return strings.Contains(b.stderr(), notice) }, patience,
		time.Millisecond)
	fmt.Fprintln(b.in, "go")
	var f *Failure
	require.ErrorAs(t, <-b.done, &f)
	require.Equal(t, []any{Stopped, 1, pid, 3}, []any{f.How, f.Rank, f.PID, f.ExitStatus()})
	require.Regexp(t, `rank 1 on .* is stopped \(SIGSTOP\), and rank 0 on .* exited with status 3\n$`, b.stderr())
}

func TestRunKillsARankThatIgnoresSIGTERM(t *testing.T) {
	b := start(t, 2, "stubborn", func(j *Job) { j.Grace = 50 * time.Millisecond })
	b.pids(2)
	fmt.Fprintln(b.in, "go")
	f := b.failure()
	require.Equal(t, []any{Exited, 0, 3}, []any{f.How, f.Rank, f.Status})
}

// afterStart calls test with longer and longer timeouts of a job, until one is long enough for what the test is
// about, which is what it returns: a busy machine may not even have started the ranks after a short one.
func afterStart(t *testing.T, test func(timeout time.Duration) bool) {
	t.Helper()
	for timeout := 200 * time.Millisecond; !test(timeout); timeout *= 2 {
		require.Less(t, timeout, patience)
	}
}

func TestRunTimesOut(t *testing.T) {
	afterStart(t, func(timeout time.Duration) bool {
		b := start(t, 2, "wait", func(j *Job) { j.Timeout = timeout })
		f := b.cause()
		require.Equal(t, TimedOut, f.How)
		require.Equal(t, 124, ExitStatus(f))
		// ranks that start as the time is over are told of in lines of their own
		return strings.Contains(f.Error(), "ranks 0-1") && b.stderr() == "weft: "+f.Error()+"\n"
	})
}

func TestRunIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer errs.Close()
	err = Run(ctx, Job{Apps: []App{{Ranks: 2, Program: os.Args[0]}}, Env: []string{modeVariable + "=wait"},
		Err: errs})
	var f *Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, Cancelled, f.How)
}

func TestRun64RanksMeetInTheBarrier(t *testing.T) {
	b := start(t, 64, "barrier", nil)
	through := map[string]bool{}
	for range 64 {
		line, err := b.out.ReadString('\n')
		require.NoError(t, err)
		through[line] = true
	}
	require.Len(t, through, 64)
	require.NoError(t, <-b.done)
	require.Empty(t, marked(b.mark))
}

// Ranks that outnumber the cores have late timers, or the monitors of all of them take most turns of the
// cores; ranks that are bound to nothing, and are few, keep their timers.
func TestRunRanksThatShareCoresHaveLateTimers(t *testing.T) {
	slack := func(n int) (got string) {
		b := start(t, n, "slack", func(j *Job) { j.BindTo.To = BindNone })
		for range n {
			line, err := b.out.ReadString('\n')
			require.NoError(t, err)
			require.True(t, got == "" || got == line, line)
			got = line
		}
		require.NoError(t, <-b.done)
		return got
	}
	// Not what /proc/self has, the slack of the first thread: that may have started the ranks of another job,
	// and is then never used again.
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", syscall.Gettid()))
	require.NoError(t, err)
	require.Equal(t, string(own), slack(1))
	require.Equal(t, fmt.Sprintln(timerSlack.Nanoseconds()), slack(runtime.NumCPU()+1))
}

func TestRunGivesAllRanksOneSecret(t *testing.T) {
	b := start(t, 2, "secret", nil)
	first, err := b.out.ReadString('\n')
	require.NoError(t, err)
	second, err := b.out.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, <-b.done)
	require.True(t, strings.HasPrefix(first, "32 "), first)
	require.Equal(t, first, second)
}

func TestRunLeavesInheritedStdioBlocking(t *testing.T) {
	var inherited [2]int
	require.NoError(t, syscall.Pipe(inherited[:]))
	reader, writer := os.NewFile(uintptr(inherited[0]), "r"), os.NewFile(uintptr(inherited[1]), "w")
	defer reader.Close()
	defer writer.Close()
	require.NoError(t, Run(t.Context(), Job{
		Apps: []App{{Ranks: 2, Program: "true"}}, Stdin: InputAll, In: reader, Out: writer, Err: writer,
	}))
	for _, fd := range inherited {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
		require.Zero(t, errno)
		require.Zero(t, flags&syscall.O_NONBLOCK)
	}
}

func TestRunRefusesNonsense(t *testing.T) {
	for _, job := range []Job{
		{}, {Apps: []App{{Ranks: 1}}}, {Apps: []App{{Ranks: 0, Program: "true"}}},
		{Apps: []App{{Ranks: maxRanks + 1, Program: "true"}}},
		{Apps: []App{{Ranks: 1, Program: "true", Dir: "/no/such"}}},
		{Apps: []App{{Ranks: 1, Program: "true"}}, Stdin: 1},
	} {
		var request *RequestError
		require.ErrorAs(t, Run(t.Context(), job), &request)
		require.Equal(t, 2, ExitStatus(request))
	}
}

func TestRunRefusesNumbersThatMakeNoSense(t *testing.T) {
	for want, change := range map[string]func(*Job){
		"a time of -1ns between SIGTERM and SIGKILL is below zero": func(j *Job) { j.Grace = -1 },
		"a time of -1ns without progress is below zero":            func(j *Job) { j.Stuck = -1 },
		"-2 endpoints of each rank: 1 to 8 are possible":           func(j *Job) { j.Endpoints = EndpointsAuto - 1 },
		"9 endpoints of each rank: 1 to 8 are possible":            func(j *Job) { j.Endpoints = MaxEndpoints + 1 },
		"-1 ranks on each host: at least 1 is needed":              func(j *Job) { j.MapBy.PerNode = -1 },
		"-1 slots of host a: 1 to 65536 are possible":              func(j *Job) { j.Hosts = []Host{{"a", -1}} },
		"65537 slots of host a: 1 to 65536 are possible":           func(j *Job) { j.Hosts = []Host{{"a", maxRanks + 1}} },
		`"-oProxyCommand=x" is no host's name`:                     func(j *Job) { j.Hosts = []Host{{"-oProxyCommand=x", 1}} },
	} {
		job := Job{Apps: []App{{Program: "true", Ranks: 1}}, DryRun: true, Starter: []string{"false"}}
		change(&job)
		err := Run(t.Context(), job)
		require.EqualError(t, err, want)
		require.Equal(t, 2, ExitStatus(err))
	}
}

// A launcher in a process of its own, whose standard output the test reads.
type process struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	mark string
}

func startLauncher(t *testing.T, mode string) *process {
	t.Helper()
	return startLauncherWith(t, "LAUNCHER_TEST_RANKS="+mode)
}

// startLauncherWith starts a launcher that takes its orders from the environment; see beLauncher.
func startLauncherWith(t *testing.T, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), mark: newMark(t)}
	p.cmd.Env = append(append(os.Environ(), modeVariable+"=launcher", p.mark), env...)
	reader, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(reader)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

func (p *process) requireGone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(marked(p.mark)) == 0 }, patience, 5*time.Millisecond)
}

func TestKilledLauncherLeavesNothingBehind(t *testing.T) {
	p := startLauncher(t, "family")
	pids := readPIDs(t, p.out, 6)
	for _, pid := range pids {
		require.NotContains(t, gone, processState(pid), "the process lives")
	}
	require.NoError(t, p.cmd.Process.Kill())
	p.cmd.Wait()
	p.requireGone(t)
	requireGone(t, pids)
}

// Where memory runs out the system ends a rank before the launcher, which has to tell of it.
func TestRanksAreEndedBeforeTheLauncherWhereMemoryRunsOut(t *testing.T) {
	p := startLauncher(t, "wait")
	defer p.cmd.Process.Kill()
	score := func(pid int) (n int) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		require.NoError(t, err)
		fmt.Sscan(string(text), &n)
		return n
	}
	for _, pid := range readPIDs(t, p.out, 2) {
		require.Eventually(t, func() bool { return score(pid) > score(p.cmd.Process.Pid) }, patience,
			time.Millisecond)
	}
}

// What has left its rank's session and environment ends with a launcher that is killed, too: nothing adopts it.
func TestKilledLauncherLeavesNoStrayBehind(t *testing.T) {
	p := startLauncher(t, "stray-wait")
	pids := readPIDs(t, p.out, 2)
	for _, pid := range pids {
		require.NotContains(t, gone, processState(pid), "the process lives")
	}
	require.NoError(t, p.cmd.Process.Kill())
	p.cmd.Wait()
	p.requireGone(t)
	requireGone(t, pids)
}

func TestInterruptReachesTheRanks(t *testing.T) {
	p := startLauncher(t, "interrupt")
	readPIDs(t, p.out, 2)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "got interrupt\n", line)
	p.cmd.Wait()
	require.Equal(t, 5, p.cmd.ProcessState.ExitCode())
	p.requireGone(t)
}

func TestTerminatedJobEndsBySignal(t *testing.T) {
	p := startLauncher(t, "wait")
	readPIDs(t, p.out, 2)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.cmd.Wait()
	require.Equal(t, 143, p.cmd.ProcessState.ExitCode())
	p.requireGone(t)
}

func TestSecondInterruptKills(t *testing.T) {
	p := startLauncher(t, "deaf")
	pids := readPIDs(t, p.out, 2)
	// Each must be seen by both ranks before the next is sent, or two would be one, and one too many would
	// strike a launcher that has done with signals; and on a slow machine the second may come too late to
	// count.
	for lives := true; lives; {
		// or two would be taken for one that came to the process and to its group
		time.Sleep(120 * time.Millisecond)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
		for range pids {
			if _, err := p.out.ReadString('\n'); err != nil {
				lives = false
			}
		}
	}
	p.cmd.Wait()
	require.Equal(t, 130, p.cmd.ProcessState.ExitCode())
	require.Len(t, pids, 2)
	p.requireGone(t)
}

// A C program that is linked with MPICH runs under weft.
func TestRunServesMPICH(t *testing.T) {
	compiler, err := exec.LookPath("mpicc.mpich")
	if err != nil {
		t.Skip("mpicc.mpich is not installed (Debian: libmpich-dev)")
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "sum.c"), filepath.Join(dir, "sum")
	require.NoError(t, os.WriteFile(source, []byte(`#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
	int rank, size, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of %d: sum %d\n", rank, size, sum);
	return MPI_Finalize();
}
`), 0o600))
	built, err := exec.Command(compiler, "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", built)
	out, err := os.Create(filepath.Join(dir, "out"))
	require.NoError(t, err)
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, Run(ctx, Job{Apps: []App{{Ranks: 3, Program: program}}, Out: out, Err: os.Stderr}))
	text, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	for r := range 3 {
		require.Contains(t, string(text), fmt.Sprintf("rank %d of 3: sum 3\n", r))
	}
}

func init() {
	// limited is an agent that starts a rank when the limit of processes has been reached.
	modes["limited"] = func() {
		if os.Getuid() == 0 {
			check(syscall.Setuid(1<<20 + os.Getpid())) // the limit does not hold for root
			const dumpable = 4                         // PR_SET_DUMPABLE: or the process cannot execute itself again
			_, _, e := syscall.Syscall(syscall.SYS_PRCTL, dumpable, 1, 0)
			if e != 0 {
				check(e)
			}
		}
		a, err := local.New(local.Options{Job: "limited", Sole: true})
		check(err)
		const processes = 6 // RLIMIT_NPROC
		check(syscall.Setrlimit(processes, &syscall.Rlimit{}))
		a.Do(agent.Start{Ranks: []agent.Rank{{Name: "true", Path: "/bin/true"}}})
		for e := range a.Events() {
			if n, is := e.(agent.NotStarted); is {
				fmt.Println(n.Reason)
				break
			}
		}
		a.Close()
	}
}

// A launcher that gets no thread and no process any more tells so, and ends the job.
func TestNoMoreProcesses(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), modeVariable+"=limited")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "the limit of processes is reached (ulimit -u)")
}
