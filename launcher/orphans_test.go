package launcher

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/build"
)

func init() {
	// flood leaves a process behind, in a session of its own, that keeps writing to the rank's output.
	modes["flood"] = func() {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), modeVariable+"=yes")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		child.Stdout = os.Stdout
		check(child.Start())
	}
	// stray leaves a process behind that neither its session nor its environment leads to.
	modes["stray"] = func() {
		child := exec.Command("/bin/sleep", "3600")
		child.Env = []string{}
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		check(child.Start())
		fmt.Println("pid", child.Process.Pid)
	}
	modes["stray-wait"] = func() { modes["stray"](); select {} }
	// orphan leaves a process behind that ends by itself.
	modes["orphan"] = func() {
		child := exec.Command("/bin/sh", "-c", "(sleep 0.05; exit 0) & echo pid $!")
		child.Stdout = os.Stdout
		check(child.Run())
		select {}
	}
}

// A flooding process that a rank has left behind does not keep the job from ending.
func TestFloodOfALeftProcessEndsWithTheJob(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	go func() {
		in := bufio.NewReader(r)
		for {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
		}
	}()
	job, stderr := ranks(t, 2, "flood")
	mark := newMark(t)
	job.Out, job.Label, job.Env = w, true, append(job.Env, mark)
	err = within(t, patience, func() error { return Run(t.Context(), job) })
	w.Close()
	require.NoError(t, err, stderr())
	require.Empty(t, marked(mark))
}

// What has left its rank's session and environment ends with the job, too.
func TestStrayProcessEndsWithTheJob(t *testing.T) {
	p := startLauncher(t, "stray")
	pids := readPIDs(t, p.out, 2)
	require.NoError(t, p.cmd.Wait())
	requireGone(t, pids)
}

// A launcher that is the first process of a container, or its descendants' subreaper, reaps orphans while the
// job runs.
func TestOrphansAreReaped(t *testing.T) {
	p := startLauncher(t, "orphan")
	for _, pid := range readPIDs(t, p.out, 2) {
		require.Eventually(t, func() bool { return processState(pid) == 0 }, patience, time.Millisecond)
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.cmd.Wait()
	require.Equal(t, 143, p.cmd.ProcessState.ExitCode())
}

// A program that runs a job beside other work may start another process at the same moment as a rank. What the
// job's end looks for must not be what such a process inherits.
func TestOtherChildrenCarryNoMark(t *testing.T) {
	limit := func(pid string) string {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "limits"))
		require.NoError(t, err)
		_, after, found := strings.Cut(string(text), "Max realtime timeout")
		require.True(t, found)
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	b := start(t, 2, "wait", nil)
	pids := b.pids(2)
	for _, pid := range pids {
		require.Equal(t, limit("self"), limit(strconv.Itoa(pid)))
	}
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	b.failure()
}

// Ranks lead sessions of their own, so they cannot be stopped for opening the launcher's terminal.
func TestRanksLeadSessions(t *testing.T) {
	b := start(t, 2, "wait", nil)
	pids := b.pids(2)
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		const session, terminal = 3, 4
		require.Equal(t, []string{strconv.Itoa(pid), "0"}, []string{fields[session], fields[terminal]})
	}
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	b.failure()
}

// A signal that races with the start of the ranks reaches each of them, or keeps it from being started.
func TestSignalDuringTheStartReachesAllRanks(t *testing.T) {
	for i := range 6 {
		p := startLauncherWith(t, "LAUNCHER_TEST_RANKS=wait", "LAUNCHER_TEST_SIZE=60",
			"LAUNCHER_TEST_GRACE=1h")
		for range i * 9 {
			_, err := p.out.ReadString('\n')
			require.NoError(t, err)
		}
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		for {
			if _, err := p.out.ReadString('\n'); err != nil {
				break
			}
		}
		p.cmd.Wait()
		if i > 0 { // before, the launcher may not have begun to take signals over
			require.Equal(t, 143, p.cmd.ProcessState.ExitCode())
		}
		p.requireGone(t)
	}
}

// A signal during the build of a Go package ends the job, and leaves neither process nor file.
func TestSignalDuringTheBuild(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	slowGo(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"),
		[]byte("package main\n\nfunc main() {}\n"), 0o600))
	p := startLauncherWith(t, "LAUNCHER_TEST_RANKS=wait", "LAUNCHER_TEST_PROGRAM="+filepath.Join(dir,
		"main.go"),
		"PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+temp, "XDG_CACHE_HOME="+filepath.Join(temp, "cache"))
	pids := slowBuild(t, dir)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.cmd.Wait()
	require.Equal(t, 143, p.cmd.ProcessState.ExitCode())
	requireGone(t, pids)
	left, err := filepath.Glob(filepath.Join(temp, "weft-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A build that is cancelled ends with its compilers, and the go command can remove its files. Nothing of the
// launcher sweeps what is left behind here.
func TestCancelledBuildEndsItsCompilers(t *testing.T) {
	dir := t.TempDir()
	slowGo(t, dir)
	source := filepath.Join(dir, "it")
	require.NoError(t, os.Mkdir(source, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(source, "main.go"), []byte("package main\n"), 0o600))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	ended := make(chan error, 1)
	go func() {
		_, err := build.Program(ctx, source, os.Stderr, nil)
		ended <- err
	}()
	pids := slowBuild(t, dir)
	t.Cleanup(func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	cancel(reason)
	require.ErrorIs(t, <-ended, reason)
	requireGone(t, pids)
	require.NoFileExists(t, filepath.Join(dir, "work"))
}

func init() {
	// slow-build is a go command that is held up by its compiler, and removes its file when it is interrupted.
	modes["slow-build"] = func() {
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, syscall.SIGINT)
		dir := os.Getenv(slowBuildVariable)
		compiler := exec.Command("/bin/sleep", "3600")
		check(compiler.Start())
		check(os.WriteFile(filepath.Join(dir, "work"), nil, 0o600))
		pids := fmt.Sprintln(compiler.Process.Pid, os.Getpid())
		check(os.WriteFile(filepath.Join(dir, "pids.new"), []byte(pids), 0o600))
		check(os.Rename(filepath.Join(dir, "pids.new"), filepath.Join(dir, "pids")))
		compiler.Wait()
		<-interrupted
		check(os.Remove(filepath.Join(dir, "work")))
	}
}

const slowBuildVariable = "LAUNCHER_TEST_SLOW_BUILD"

// slowGo writes a go command into the folder whose builds do not end.
func slowGo(t *testing.T, dir string) {
	t.Helper()
	tool := filepath.Join(dir, "go")
	script := "#!/bin/sh\ncase $1 in build) ;; *) exec " + goTool(t) + " \"$@\";; esac\n" +
		"exec env " + modeVariable + "=slow-build " + slowBuildVariable + "=" + dir + " " + os.Args[0] + "\n"
	require.NoError(t, os.WriteFile(tool, []byte(script), 0o700))
}

// slowBuild waits until a build is under way, and returns its processes.
func slowBuild(t *testing.T, dir string) (pids []int) {
	t.Helper()
	var text []byte
	require.Eventually(t, func() bool {
		text, _ = os.ReadFile(filepath.Join(dir, "pids"))
		return len(text) > 0
	}, patience, time.Millisecond)
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func goTool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	require.NoError(t, err)
	return path
}
