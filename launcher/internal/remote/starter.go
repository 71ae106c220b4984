package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

// explainTimeout is how long to wait for a starter that has failed to say why.
const explainTimeout = 500 * time.Millisecond

// process is a starter that runs: its standard input and output are the stream to the agent.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr *tail
	ended  chan struct{} // closed when the starter has ended
	said   chan struct{} // closed when all of its standard error is in stderr
	kill   func()        // ends the starter and its group
	leave  func()        // where the starter serves other agents, too: has it go on for them
}

func startProcess(command []string) (*process, error) {
	p := &process{
		cmd: exec.Command(command[0], command[1:]...), stderr: new(tail),
		ended: make(chan struct{}), said: make(chan struct{}),
	}
	// Signals of the terminal are for the launcher, which passes them on.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the starter cannot be run: %w", err)
	}
	// A process that the starter leaves behind, as ssh does with ControlPersist, may keep its standard error
	// open for ever. So the end of the one does not wait for the end of the other.
	go func() {
		io.Copy(p.stderr, stderr)
		close(p.said)
	}()
	killed := make(chan struct{})
	go func() {
		sys.AwaitEnd(p.cmd.Process.Pid)
		close(p.ended)
		<-killed
		p.cmd.Process.Wait()
	}()
	p.kill = sync.OnceFunc(func() {
		isFreed := false // its process id, which may be another's then
		select {
		case <-p.ended:
			// This process's agent reaps children that it does not know.
			isFreed = sys.AwaitEnd(p.cmd.Process.Pid) != nil
		default:
		}
		if !isFreed {
			syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		}
		close(killed)
		p.wait(closeTimeout)
		stderr.Close()
	})
	return p, nil
}

// ErrEnded is the end of the stream to an agent that has not closed it.
var ErrEnded = errors.New("the connection to its agent has ended")

// A NoAgentError says that something else than an agent has answered, and what last.
type NoAgentError struct{ Last string }

func (e *NoAgentError) Error() string {
	return fmt.Sprintf("no agent came up; the last line before: %q", e.Last)
}

// explain puts the starter's own words in place of an error that only says that the stream has ended. It ends
// the starter.
func (p *process) explain(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) {
		p.waitForLastWords()
		err = ErrEnded
	}
	text := p.stderr.last()
	p.stop()
	if text != "" {
		// Most programs begin their messages with their names.
		name := filepath.Base(p.cmd.Args[0]) + ": "
		err = fmt.Errorf("%w (%s: %s)", err, p.cmd.Args[0], strings.TrimPrefix(text, name))
	}
	return err
}

// A StartError says why an agent did not start.
type StartError struct {
	Host string
	Err  error
	Late bool   // nothing has come in time
	Said string // the last line that the starter has written to its standard error
}

func (e *StartError) Error() string { return fmt.Sprintf("host %s: %v", e.Host, e.Err) }
func (e *StartError) Unwrap() error { return e.Err }

// wait waits for the starter to end by itself.
func (p *process) wait(limit time.Duration) {
	select {
	case <-p.ended:
	case <-time.After(limit):
	}
}

// waitForLastWords waits for up to explainTimeout until the starter has ended and all that it has said is in
// stderr.
func (p *process) waitForLastWords() {
	late := time.After(explainTimeout)
	for _, c := range []chan struct{}{p.ended, p.said} {
		select {
		case <-c:
		case <-late:
			return
		}
	}
}

// stop ends the starter, or the use of it where it serves other agents, too.
func (p *process) stop() {
	p.stdin.Close()
	if p.leave != nil {
		p.stdout.Close()
		p.leave()
		return
	}
	p.kill()
	p.stdout.Close()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailLen = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if extra := len(t.text) - tailLen; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(b), nil
}

// last is the last line that is not empty.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.text), []byte("\n"))
	return strings.TrimSpace(string(lines[len(lines)-1]))
}

// firstError is the first line that tells of an error, or the last line where none does.
func (t *tail) firstError() string {
	t.mu.Lock()
	for line := range bytes.Lines(t.text) {
		if bytes.Contains(line, []byte("error")) {
			t.mu.Unlock()
			return string(bytes.TrimSpace(line))
		}
	}
	t.mu.Unlock()
	return t.last()
}
