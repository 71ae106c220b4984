package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/gdamore/tcell/v3/vt"
	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/live"
	"github.com/weft-mpi/weft/mpi"
)

// sleeper is a program of which rank 0 waits until its input ends, and the others wait for it. Rank 1 calls
// Init when the file is there that WEFT_TEST_LATE names.
func sleeper() {
	for late := os.Getenv("WEFT_TEST_LATE"); late != "" && os.Getenv("PMI_RANK") == "1"; {
		if _, err := os.Stat(late); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	err := mpi.Run(context.Background(), func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			io.Copy(io.Discard, os.Stdin)
		}
		return mpi.Barrier(world)
	})
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// startSleeper starts a job of two ranks, with a folder of its own for the socket, and returns when it can be
// watched. It ends when its input does.
func startSleeper(t *testing.T) (job *exec.Cmd, input io.Closer, env []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	// Jobs of other tests are not to be seen: their sockets are in the other folder.
	env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "TMPDIR="+t.TempDir(), "TERM=xterm-256color")
	job = exec.Command("weft", "run", "-n", "2", "sleeper")
	job.Env, job.Stderr = env, os.Stderr
	input, err := job.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, job.Start())
	t.Cleanup(func() {
		input.Close()
		job.Wait()
	})
	for {
		if once, err := weftTop(env, "--once"); err == nil && strings.Contains(once, "Barrier on world") {
			return job, input, env, dir
		}
	}
}

func weftTop(env []string, args ...string) (string, error) {
	cmd := exec.Command("weft", append([]string{"top"}, args...)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// For programs, the table is JSON.
func TestTop_JSON(t *testing.T) {
	t.Parallel()
	job, _, env, _ := startSleeper(t)
	out, err := weftTop(env, "--once", "--json")
	require.NoError(t, err, out)
	var f jobFacts
	require.NoError(t, json.Unmarshal([]byte(out), &f), out)
	require.Equal(t, job.Process.Pid, f.Job)
	require.Equal(t, "sleeper", f.Name)
	require.Len(t, f.Ranks, 2)
	require.Equal(t, live.Waiting, f.Ranks[1].State)
	require.Contains(t, f.Ranks[1].Call, "Barrier on world")
}

// Where its output is no terminal, weft top says that it goes on until the job ends.
func TestTop_InAFile(t *testing.T) {
	t.Parallel()
	job, input, env, _ := startSleeper(t)
	cmd := exec.Command("weft", "top")
	cmd.Env = env
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	begin := make([]byte, len("weft top: "))
	_, err = io.ReadFull(out, begin)
	require.NoError(t, err)
	require.Equal(t, "weft top: ", string(begin))
	input.Close()
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.NoError(t, job.Wait())
	require.Contains(t, said.String(), "weft: standard output is no terminal: the table comes once a second")
}

// weft top finds the job, shows its ranks on a terminal, and ends with it.
func TestTop_OnATerminal(t *testing.T) {
	t.Parallel()
	job, input, env, _ := startSleeper(t)
	cmd := exec.Command("weft", "top", "sleeper")
	cmd.Env = env
	complete := regexp.MustCompile(`(?s)weft top: sleeper, pid .*sorted by rank.*` +
		`\n0 [^\n]* working .*\n1 [^\n]* waiting [^\n]* Barrier on world, at top_test.go:`)
	seen := false
	err := watchTerminal(cmd, &pty.Winsize{Cols: 140, Rows: 12}, func(screen string) {
		// A screen comes in parts, so what is there may be half old and half new.
		if complete.MatchString(screen) {
			seen = true
			input.Close()
		}
	})
	require.True(t, seen, "the job has ended before the screen was complete")
	require.NoError(t, job.Wait())
	require.NoError(t, err)
}

// watchTerminal runs a command on a terminal of a size, until it ends, and tells of each change of the screen.
func watchTerminal(cmd *exec.Cmd, size *pty.Winsize, changed func(screen string)) error {
	emulator := vt.NewMockTerm(vt.MockOptSize{X: vt.Col(size.Cols), Y: vt.Row(size.Rows)})
	if err := emulator.Start(); err != nil {
		return err
	}
	defer emulator.Stop()
	terminal, err := pty.StartWithSize(cmd, size)
	if err != nil {
		return err
	}
	defer terminal.Close()
	go io.Copy(terminal, emulator) // what the terminal answers
	shown := make(chan struct{}, 1)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := terminal.Read(b)
			emulator.Write(b[:n])
			select {
			case shown <- struct{}{}:
			default:
			}
			if err != nil {
				close(shown)
				return
			}
		}
	}()
	for range shown {
		emulator.Drain()
		changed(screenOf(emulator, vt.Col(size.Cols), vt.Row(size.Rows)))
	}
	return cmd.Wait()
}

func screenOf(term vt.MockTerm, width vt.Col, height vt.Row) string {
	var b strings.Builder
	for y := range height {
		for x := range width {
			if c := term.GetCell(vt.Coord{X: x, Y: y}).C; c != "" {
				b.WriteString(c)
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A rank that was in Init when it was first asked is shown as starting, and then as what it does.
func TestTop_InInit(t *testing.T) {
	t.Parallel()
	dir, late := t.TempDir(), filepath.Join(t.TempDir(), "late")
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "TMPDIR="+t.TempDir(), "WEFT_TEST_LATE="+late)
	job := exec.Command("weft", "run", "-n", "2", "sleeper")
	job.Env, job.Stderr = env, os.Stderr
	input, err := job.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, job.Start())
	t.Cleanup(func() {
		input.Close()
		job.Process.Signal(os.Interrupt)
		job.Wait()
	})
	until := func(pattern string) {
		t.Helper()
		re := regexp.MustCompile(pattern)
		var out string
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
			if out, err = weftTop(env, "--once"); err == nil && re.MatchString(out) {
				return
			}
		}
		require.FailNow(t, "the ranks do not come to it", "%s\n%s\n%v", pattern, out, err)
	}
	until(`(?m)^0 +\S+ +starting .* Init, at top_test.go:\d+$`)
	require.NoError(t, os.WriteFile(late, nil, 0o600))
	until(`(?s)\n0 [^\n]* working .*\n1 [^\n]* waiting .* Barrier on world, at top_test.go:`)
	input.Close()
	require.NoError(t, job.Wait())
}

// A job that is killed outright leaves a socket behind, which whoever looks next removes.
func TestTop_AfterKill(t *testing.T) {
	t.Parallel()
	job, input, env, dir := startSleeper(t)
	defer input.Close()
	sockets := func() int {
		list, err := filepath.Glob(filepath.Join(dir, "weft", "*"))
		require.NoError(t, err)
		return len(list)
	}
	require.Equal(t, 1, sockets())
	out, err := weftTop(env, "--once", strconv.Itoa(job.Process.Pid))
	require.NoError(t, err, out)
	require.NoError(t, job.Process.Kill())
	require.Error(t, job.Wait())
	out, err = weftTop(env)
	require.Error(t, err, out)
	require.Equal(t, "weft: no job of this user runs on this host\n", out)
	require.Zero(t, sockets())
}
