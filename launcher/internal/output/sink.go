package output

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

const (
	// Ranks are paused when more than maxUnwritten bytes wait in a sink, and resumed below minUnwritten.
	maxUnwritten = 1 << 20
	minUnwritten = 256 << 10
	// stopTimeout bounds how long stop waits for a write in progress. It leaves a write that the kernel holds
	// alone.
	stopTimeout = 100 * time.Millisecond
)

// A sink is a file for the output of many ranks: standard output or error. Output waits in a queue until a
// goroutine has written it, so that nobody waits for the reader of the file. The sink never makes the file
// non-blocking, but the file may be or become so.
type sink struct {
	name    string // for messages
	file    *os.File
	fd      int
	regular bool          // a file whose writes do not wait for a reader
	changed chan struct{} // signaled after each write; holds one message
	stopW   int           // closing it ends the writing
	stopR   int
	stopped chan struct{} // closed when the goroutine has ended

	mu        sync.Mutex
	work      *sync.Cond
	queue     [][]byte
	unwritten int
	closing   bool
	err       error // of the first write that failed; everything after it is dropped
	// its unfinished line is the last in the queue; nil if the last line is finished
	open *lineBuffer
}

func newSink(name string, file *os.File, changed chan struct{}) (*sink, error) {
	s := &sink{name: name, file: file, changed: changed, stopped: make(chan struct{})}
	s.work = sync.NewCond(&s.mu)
	// Fd would make the file blocking for this whole process.
	conn, err := file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { s.fd = int(fd) })
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil {
		s.regular = info.Mode().IsRegular()
	}
	if s.stopR, s.stopW, err = sys.Pipe(); err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

// put queues text of a rank's stream, or a line of the launcher if from is nil. Text without a final newline
// is the beginning of a line, which from's next text continues unless another text comes in between.
func (s *sink) put(from *lineBuffer, text []byte) {
	if len(text) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	continued := from != nil && s.open == from
	if from != nil && from.label != "" {
		text = labelled(text, from.label, continued)
	}
	if s.open != nil && !continued {
		s.add([]byte{'\n'})
	}
	s.add(text)
	s.open = nil
	if text[len(text)-1] != '\n' {
		s.open = from
	}
	s.work.Signal()
}

func (s *sink) add(text []byte) {
	if s.err == nil && !s.closing {
		s.queue = append(s.queue, text)
		s.unwritten += len(text)
	}
}

// state returns the number of unwritten bytes, and the error of the first failed write.
func (s *sink) state() (unwritten int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unwritten, s.err
}

// run writes what is queued.
func (s *sink) run() {
	defer close(s.stopped)
	defer syscall.Close(s.stopR)
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closing {
			s.work.Wait()
		}
		if s.closing {
			s.mu.Unlock()
			return
		}
		text := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.mu.Unlock()
		if !s.write(text) {
			return
		}
	}
}

// write writes text. It reports whether the writing goes on.
func (s *sink) write(text []byte) bool {
	for len(text) > 0 {
		part := text
		if !s.regular {
			// Only this much surely goes into a pipe or a terminal without waiting for its reader.
			part = text[:min(len(text), sys.PipeAtomic)]
			if writable, err := sys.WaitWritable(s.fd, s.stopR); err != nil {
				return s.onWritten(0, err)
			} else if !writable {
				return false
			}
		}
		n, err := syscall.Write(s.fd, part)
		if err == syscall.EINTR || err == syscall.EAGAIN {
			n, err = 0, nil
		}
		if !s.onWritten(max(n, 0), err) {
			return true // queued and future output is dropped
		}
		text = text[max(n, 0):]
	}
	return true
}

// onWritten records the result of a write. It reports whether more may follow.
func (s *sink) onWritten(n int, err error) bool {
	s.mu.Lock()
	s.unwritten -= n
	if err != nil {
		s.err = err
		s.queue, s.unwritten = nil, 0
	}
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return err == nil
}

// stop ends the writing. What is not written is dropped.
func (s *sink) stop() {
	s.mu.Lock()
	s.closing = true
	s.work.Signal()
	s.mu.Unlock()
	syscall.Close(s.stopW)
	select {
	case <-s.stopped:
	case <-time.After(stopTimeout):
	}
}

// flush waits until everything is written, at most for limit.
func (s *sink) flush(limit time.Duration) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if n, err := s.state(); n == 0 || err != nil {
			return
		}
	}
}
