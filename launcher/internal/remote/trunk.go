package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Trunk is one starter that starts the agents of several hosts, such as srun. It copies its input to all of
// them, and mixes their output, line by line. Each line carries a part of the stream of one agent:
//
//	weft-part NUMBER BASE64
//
// A line without data is the end of the stream. Other lines are skipped.
type Trunk struct {
	process *process
	parts   []*io.PipeWriter // by agent
	agents  []*process       // by agent: its stream, in place of a starter of its own

	out  *queue
	left atomic.Int32 // agents whose streams are still in use
}

const (
	partMark = "weft-part "
	// lineData is how many bytes a line carries: srun keeps lines of up to 1,024 bytes whole.
	lineData = 720
	maxPart  = 4 << 10 // of a line, newline included, that is looked at
)

// appendParts appends the lines that carry data; no data is the end of the stream.
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

// parsePart reads a line. Not every line is a part.
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

// eachPart calls take for every part that comes, until the stream ends.
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
		t.parts = append(t.parts, w)
		t.agents = append(t.agents, &process{
			cmd: p.cmd, stderr: p.stderr, waited: p.waited, stdin: &branch{t: t, number: i}, stdout: r,
			leave: sync.OnceFunc(t.leave),
		})
	}
	go t.out.run(p.stdin)
	go t.deal()
	return t, nil
}

// Connect returns the agent with a number when it has said hello, as the function Connect does.
func (t *Trunk) Connect(ctx context.Context, number int, host, job string) (*Agent, error) {
	return connectStream(ctx, host, job, t.agents[number], nil)
}

// deal hands the parts that come to their agents' streams.
func (t *Trunk) deal() {
	err := eachPart(t.process.stdout, func(number int, data []byte) {
		if number < len(t.parts) && len(data) > 0 {
			t.parts[number].Write(data)
		} else if number < len(t.parts) {
			t.parts[number].Close()
		}
	})
	for _, w := range t.parts {
		w.CloseWithError(err)
	}
}

// leave notes that an agent's stream is not used any more. The last one ends the starter.
func (t *Trunk) leave() {
	if t.left.Add(-1) == 0 {
		t.out.close()
		t.process.stop()
	}
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
	for b.t.out.size() > maxUnsent {
		select {
		case <-b.t.out.written:
		case <-b.t.out.done:
			return 0, syscall.EPIPE
		}
	}
	if b.closed.Load() {
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

// Branch returns the agent's side of a trunk: both directions of the stream of the agent with a number.
func Branch(in io.Reader, out io.Writer, number int) (io.Reader, io.Writer) {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(eachPart(in, func(n int, data []byte) {
			if n == number && len(data) > 0 {
				w.Write(data)
			} else if n == number {
				w.Close()
			}
		}))
	}()
	return r, branchOut{out, number}
}

type branchOut struct {
	out    io.Writer
	number int
}

func (b branchOut) Write(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	if _, err := b.out.Write(appendParts(nil, b.number, data)); err != nil {
		return 0, err
	}
	return len(data), nil
}
