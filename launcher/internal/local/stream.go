package local

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A stream is one rank's standard output or error, read from a pipe.
type stream struct {
	rank int
	kind agent.Stream
	pipe *os.File
	over chan struct{} // closed when the rank has ended: only the contents of the pipe are still read
	flow *gate
	emit func(agent.Event)
}

// copy reports what the rank writes, until its end.
func (s *stream) copy() {
	defer s.pipe.Close()
	buf := make([]byte, 32<<10)
	for {
		s.flow.wait(s.over)
		n, err := s.pipe.Read(buf)
		s.report(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.drain(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) report(data []byte) {
	if len(data) > 0 {
		s.emit(agent.Output{Rank: s.rank, Stream: s.kind, Data: bytes.Clone(data)})
	}
}

// end makes copy read only the current contents of the pipe, even if a process that the rank has left behind
// holds it.
func (s *stream) end() {
	close(s.over)
	s.pipe.SetReadDeadline(time.Unix(1, 0))
}

// drain reads what the pipe holds, without waiting for more. A process that keeps writing cannot prolong it.
func (s *stream) drain(buf []byte) {
	s.pipe.SetReadDeadline(time.Time{})
	conn, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	conn.Read(func(fd uintptr) bool {
		for left := sys.PipeCapacity(int(fd)); left > 0; {
			n, err := syscall.Read(int(fd), buf[:min(left, len(buf))])
			if err == syscall.EINTR {
				continue
			}
			if err != nil || n <= 0 {
				break
			}
			s.report(buf[:n])
			left -= n
		}
		return true
	})
}

// A gate blocks goroutines while it is shut. The zero value is open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: open; otherwise closed when it opens
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.open == nil:
		g.open = make(chan struct{})
	case !shut && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

// wait returns when the gate is open, or over is closed.
func (g *gate) wait(over <-chan struct{}) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-over:
	}
}
