package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Trunk is one starter that starts the agents of several hosts, such as srun. It copies its input to all of
// them, and mixes their output, line by line. Each line carries a piece of the stream of one agent:
//
//	weft-part NUMBER BASE64
//
// A line without data is the end of the stream. Other lines are skipped.
type Trunk struct {
	process *process
	parts   []part // by agent

	out  *queue
	left atomic.Int32 // agents whose streams are still in use
}

// A part is one agent's share of a trunk: the pieces that come for the agent make up its stream.
type part struct {
	in    *io.PipeWriter // what comes from the agent
	agent *process       // what the Agent takes for a starter of its own
	over  func()         // closes agent.ended
}

// errTrunkEnded is the end of the streams of all agents of a trunk.
var errTrunkEnded = fmt.Errorf("the starter of all agents has ended: %w", io.EOF)

const (
	partMark = "weft-part "
	// lineData is how many bytes a line carries: srun keeps lines of up to 1,024 bytes whole.
	lineData = 720
	maxPart  = 4 << 10 // of a line, newline included, that is looked at
)

// appendParts appends the lines that carry data in pieces; no data is the end of the stream.
func appendParts(b []byte, number int, data []byte) []byte {
	for {
		n := min(len(data), lineData)
		b = append(b, partMark...)
		b = strconv.AppendInt(b, int64(number), 10)
		b = append(b, ' ')
		b = base64.StdEncoding.AppendEncode(b, data[:n])
		b = append(b, '\n')
		if data = data[n:]; len(data) == 0 {
			return b
		}
	}
}

// parsePart reads a line. Not every line carries a piece.
func parsePart(line []byte) (number int, data []byte, ok bool) {
	at := bytes.Index(line, []byte(partMark))
	if at < 0 {
		return 0, nil, false
	}
	digits, text, ok := bytes.Cut(bytes.TrimRight(line[at+len(partMark):], "\r\n"), []byte(" "))
	if !ok {
		return 0, nil, false
	}
	number, err := strconv.Atoi(string(digits))
	if err != nil || number < 0 {
		return 0, nil, false
	}
	data, err = base64.StdEncoding.AppendDecode(nil, text)
	return number, data, err == nil
}

// eachPart calls take for every piece that comes, with the agent's number, until the stream ends.
func eachPart(r io.Reader, take func(number int, data []byte)) error {
	lines := bufio.NewReaderSize(r, maxPart)
	for {
		line, err := lines.ReadSlice('\n')
		if number, data, ok := parsePart(line); ok && err == nil {
			take(number, data)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// StartTrunk starts the agents of n hosts by one command.
func StartTrunk(command []string, n int) (*Trunk, error) {
	p, err := startProcess(command)
	if err != nil {
		return nil, err
	}
	t := &Trunk{process: p, out: newQueue()}
	t.left.Store(int32(n))
	for i := range n {
		r, w := io.Pipe()
		ended := make(chan struct{})
		t.parts = append(t.parts, part{
			in: w, over: sync.OnceFunc(func() { close(ended) }),
			agent: &process{
				cmd: p.cmd, stderr: p.stderr, ended: ended, said: ended, stdin: &branch{t: t, number: i},
				stdout: r, leave: sync.OnceFunc(t.leave),
			},
		})
	}
	go func() {
		t.out.run(p.stdin)
		p.stdin.Close()
	}()
	go t.deal()
	return t, nil
}

// Connect returns the agent with a number when it has said hello, as the function Connect does.
func (t *Trunk) Connect(ctx context.Context, number int, host, job string) (*Agent, error) {
	return connectStream(ctx, host, job, t.parts[number].agent, nil)
}

// deal hands the pieces that come to their agents' streams.
func (t *Trunk) deal() {
	eachPart(t.process.stdout, func(number int, data []byte) {
		if number >= len(t.parts) {
			return
		}
		if p := &t.parts[number]; len(data) > 0 {
			p.in.Write(data)
		} else {
			p.in.Close()
			p.over()
		}
	})
	t.process.waitForLastWords()
	for _, p := range t.parts {
		p.in.CloseWithError(errTrunkEnded)
		p.over()
	}
}

// leave notes that an agent's stream is not used any more. After the last one the starter's input ends, and
// with it the starter.
func (t *Trunk) leave() {
	if t.left.Add(-1) == 0 {
		t.out.close()
		t.process.wait(closeTimeout)
		t.process.stop()
	}
}

// endedText says that the starter has ended, and why: its first error, as later ones may be consequences.
func (p *process) endedText() string {
	text := p.cmd.Args[0] + " has ended"
	if why := p.stderr.firstError(); why != "" {
		text += " (" + why + ")"
	}
	return text
}

// A branch is the stream from the launcher to one agent of a trunk.
type branch struct {
	t      *Trunk
	number int
	closed atomic.Bool
}

func (b *branch) Write(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	if !b.t.out.room() || b.closed.Load() {
		return 0, syscall.EPIPE
	}
	b.t.out.put(appendParts(nil, b.number, data))
	return len(data), nil
}

// Close tells the agent the end of its stream. It does not wait.
func (b *branch) Close() error {
	if !b.closed.Swap(true) {
		b.t.out.put(appendParts(nil, b.number, nil))
	}
	return nil
}

// Hold runs an agent as the one with a number in a trunk. It returns when the trunk has ended, and the agent.
// The calling process is the one that the starter has started, and outlives the agent: it reports the agent's
// end to the launcher, and continues to read. If a task of srun ends before its input, srun may end the other
// tasks (if there is unread input for it), and after 1,024 more reads it does not read its input any more.
func Hold(in io.Reader, out io.Writer, number int, command []string, signals <-chan os.Signal) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	over, closed := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() {
		stdin.Close()
		close(closed)
	})
	go func() {
		defer close(over)
		eachPart(in, func(n int, data []byte) {
			if n == number && len(data) > 0 {
				stdin.Write(data)
			} else if n == number {
				end()
			}
		})
		end()
	}()
	go func() {
		for range signals {
			stdin.Close() // which ends the agent
		}
	}()
	io.Copy(branchOut{out, number}, stdout)
	stdout.Close()
	cmd.Wait()
	select {
	case <-closed:
	case <-time.After(heldPause):
	}
	out.Write(appendParts(nil, number, nil))
	<-over
	return nil
}

// heldPause is how long Hold waits before it reports that the agent has ended by itself. If the starter kills
// all its tasks, this process is gone by then: no agent has failed.
const heldPause = 100 * time.Millisecond

// branchOut writes an agent's stream as its part of a trunk.
type branchOut struct {
	out    io.Writer
	number int
}

func (b branchOut) Write(data []byte) (int, error) {
	if _, err := b.out.Write(appendParts(nil, b.number, data)); err != nil {
		return 0, err
	}
	return len(data), nil
}
