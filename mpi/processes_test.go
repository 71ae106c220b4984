package mpi_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/launcher/launchertest"
)

// processes are ranks that nobody ends when one of them fails, unlike those of the launcher: so a test sees
// what becomes of the others.
type processes struct {
	t     testing.TB
	ranks []*process
}

type process struct {
	cmd   *exec.Cmd
	lines chan string // of its standard output
	input io.Writer

	mu     sync.Mutex
	errors strings.Builder // its standard error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errors.Write(b)
}

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errors.String()
}

// manner is how ranks are started and reached.
type manner struct {
	within func(rank int) []string // words before the rank's command; nil for none
	// where peers reach a rank that listens at an address; nil for there
	via func(rank int, addr string) string
}

// begin starts n ranks that run a body. What is left of them at the end of the test is killed.
func begin(t testing.TB, n int, name string, env ...string) *processes {
	t.Helper()
	return beginAs(t, n, name, manner{}, env...)
}

func beginAs(t testing.TB, n int, name string, how manner, env ...string) *processes {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	j := &processes{t: t}
	conns := make([]net.Conn, n)
	for rank := range n {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		ours, theirs := os.NewFile(uintptr(fds[0]), "pmi"), os.NewFile(uintptr(fds[1]), "pmi")
		conns[rank], err = net.FileConn(ours)
		require.NoError(t, err)
		if how.via != nil {
			conns[rank] = &readdressed{Conn: conns[rank], lines: bufio.NewReader(conns[rank]), rank: rank,
				via: how.via}
		}
		words := []string{self}
		if how.within != nil {
			words = append(how.within(rank), self)
		}
		p := &process{cmd: exec.Command(words[0], words[1:]...), lines: make(chan string, 1024)}
		p.cmd.Env = slices.Concat(os.Environ(), launchertest.Environ(name),
			[]string{"PMI_FD=3", "PMI_RANK=" + strconv.Itoa(rank),
				"PMI_SIZE=" + strconv.Itoa(n), "WEFT_CORES_PER_RANK=0"}, env)
		p.cmd.ExtraFiles = []*os.File{theirs}
		p.cmd.Stderr = p
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := p.cmd.StdoutPipe()
		require.NoError(t, err)
		p.input, err = p.cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, start(t, p.cmd))
		require.NoError(t, ours.Close())
		require.NoError(t, theirs.Close())
		go func() {
			defer close(p.lines)
			for in := bufio.NewReader(out); ; {
				line, err := in.ReadString('\n')
				if err != nil {
					io.Copy(io.Discard, in)
					return
				}
				p.lines <- strings.TrimSuffix(line, "\n")
			}
		}()
		j.ranks = append(j.ranks, p)
	}
	var serving sync.WaitGroup
	servePMI(&serving, conns)
	t.Cleanup(func() {
		for _, p := range j.ranks {
			p.cmd.Process.Kill() // a stopped one too
		}
		for _, p := range j.ranks {
			p.cmd.Wait()
		}
		for _, c := range conns {
			c.Close()
		}
		serving.Wait()
	})
	return j
}

// readdressed is a rank's connection to its launcher, on which the address that it tells is replaced by
// another.
type readdressed struct {
	net.Conn
	lines *bufio.Reader
	rest  []byte // of the line that is being read
	rank  int
	via   func(rank int, addr string) string
}

func (c *readdressed) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if put, addr, ok := strings.Cut(strings.TrimSpace(line), "tcp=tcp:"); ok {
			line = put + "tcp=tcp:" + c.via(c.rank, addr) + "\n" // the last entry of a card
		}
		c.rest = []byte(line)
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// start starts a program that ends with this one: with the thread that has started it, to be exact, so that
// thread is kept until the test is over.
func start(t testing.TB, cmd *exec.Cmd) error {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-over
	}()
	return <-started
}

// says waits until a rank has said a line that begins so, and gives the rest of it.
func (j *processes) says(rank int, want string) string {
	j.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-j.ranks[rank].lines:
			if !ok {
				how, _ := j.ranks[rank].cmd.Process.Wait()
				j.t.Fatalf("rank %d has ended (%v) and has not said %q; standard error:\n%s", rank, how,
					want, j.ranks[rank].stderr())
			}
			if rest, ok := strings.CutPrefix(line, want); ok {
				return rest
			}
			if !strings.HasPrefix(line, "round") {
				j.t.Logf("rank %d: %s", rank, line)
			}
		case <-late:
			j.ranks[rank].cmd.Process.Signal(syscall.SIGQUIT)
			time.Sleep(time.Second)
			j.t.Fatalf("rank %d does not say %q; standard error:\n%s", rank, want, j.ranks[rank].stderr())
		}
	}
}

// tell sends a rank a line.
func (j *processes) tell(rank int, line string) {
	j.t.Helper()
	if _, err := io.WriteString(j.ranks[rank].input, line+"\n"); err != nil {
		how, _ := j.ranks[rank].cmd.Process.Wait()
		j.t.Fatalf("rank %d (%v) cannot be told %q: %v; standard error:\n%s", rank, how, line, err,
			j.ranks[rank].stderr())
	}
}

func (j *processes) signal(rank int, sig syscall.Signal) {
	j.t.Helper()
	require.NoError(j.t, j.ranks[rank].cmd.Process.Signal(sig))
}

// stopped waits until the system has stopped a rank.
func (j *processes) stopped(rank int) {
	j.t.Helper()
	for {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(j.ranks[rank].cmd.Process.Pid) + "/stat")
		require.NoError(j.t, err)
		if _, state, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(state, "T") {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// servePMI answers the ranks of a job, one connection each, until they end.
func servePMI(serving *sync.WaitGroup, conns []net.Conn) {
	ranks := make([]pmi.Rank, len(conns))
	for id := range ranks {
		ranks[id].ID = id
	}
	var mu sync.Mutex
	server := pmi.NewServer(pmi.Config{KVSName: "processes", Size: len(conns)}, ranks)
	for rank, conn := range conns {
		serving.Go(func() {
			for in := bufio.NewScanner(conn); in.Scan(); {
				mu.Lock()
				e, err := server.Handle(rank, in.Text())
				if e.Arrived {
					e.Replies = append(e.Replies, server.Release().Replies...)
				}
				if e.Find != "" {
					e.Replies = append(e.Replies, server.Found(e.Find, "", false).Replies...)
				}
				mu.Unlock()
				if err != nil {
					return
				}
				for _, r := range e.Replies {
					conns[r.Rank].Write([]byte(r.Line))
				}
			}
		})
	}
}
