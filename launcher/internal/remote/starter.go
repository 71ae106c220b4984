package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// explainTimeout is how long to wait for a starter that has failed to say why.
const explainTimeout = 500 * time.Millisecond

// process is a starter that runs: its standard input and output are the stream to the agent.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr *tail
	waited chan struct{} // closed when the starter has ended
	leave  func()        // where the starter serves other agents, too: has it go on for them
}

func startProcess(command []string) (*process, error) {
	p := &process{
		cmd: exec.Command(command[0], command[1:]...), stderr: new(tail), waited: make(chan struct{}),
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
	go func() {
		io.Copy(p.stderr, stderr)
		// Whoever reaps this process's children may have been first; that it has ended is all that counts.
		p.cmd.Process.Wait()
		close(p.waited)
	}()
	return p, nil
}

// explain puts the starter's own words in place of an error that only says that the stream has ended. It ends
// the starter.
func (p *process) explain(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) {
		p.wait(explainTimeout)
		err = errors.New("the connection to its agent has ended")
	}
	text := p.stderr.last()
	p.stop()
	if text != "" {
		err = fmt.Errorf("%w (%s: %s)", err, p.cmd.Args[0], text)
		if strings.Contains(text, "No such file") || strings.Contains(text, "not found") {
			err = fmt.Errorf("%w; install weft there, or name its path there with --agent-path", err)
		}
		return err
	}
	return err
}

// wait waits for the starter to end by itself.
func (p *process) wait(limit time.Duration) {
	select {
	case <-p.waited:
	case <-time.After(limit):
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
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.waited
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
