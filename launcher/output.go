package launcher

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	partialAfter = 100 * time.Millisecond // an unfinished line, such as a prompt, is shown after this
	maxPending   = 64 << 10               // and when it is longer than this
	drainAfter   = 200 * time.Millisecond // how long an ended rank's pipe may stay open, held by a process that left its group
)

// A sink is where the lines of many ranks come together: standard output or error. Lines are written whole.
type sink struct {
	mu     sync.Mutex
	file   *os.File
	open   *stream // whose unfinished line is the last that was written; nil when the last line is finished
	broken bool    // nobody reads any more
}

// write shows text of a stream, whose last line is unfinished if it does not end in a newline. It tells whether anyone reads.
func (s *sink) write(from *stream, text []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken || len(text) == 0 {
		return !s.broken
	}
	continued := from != nil && s.open == from
	if from != nil && from.label != "" {
		text = labelled(text, from.label, continued)
	}
	if s.open != nil && !continued {
		text = append([]byte{'\n'}, text...)
	}
	s.open = nil
	if text[len(text)-1] != '\n' {
		s.open = from
	}
	if _, err := s.file.Write(text); errors.Is(err, syscall.EPIPE) {
		s.broken = true
	}
	return !s.broken
}

func (s *sink) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// labelled puts the label before every line, except before the first if that continues one.
func labelled(text []byte, label string, continued bool) []byte {
	out := make([]byte, 0, len(text)+len(label)*(bytes.Count(text, []byte{'\n'})+1))
	for line := range bytes.Lines(text) {
		if !continued {
			out = append(out, label...)
		}
		continued = false
		out = append(out, line...)
	}
	return out
}

// A stream is one rank's standard output or error, read from a pipe.
type stream struct {
	sink    *sink
	label   string
	pipe    *os.File
	pending []byte      // the beginning of a line
	ended   atomic.Bool // the rank has ended: what is in the pipe is all that comes
}

// copy carries the stream to its sink until its end.
func (s *stream) copy() {
	defer s.pipe.Close()
	buf := make([]byte, 32<<10)
	for {
		if len(s.pending) > 0 {
			s.pipe.SetReadDeadline(time.Now().Add(partialAfter))
		}
		n, err := s.pipe.Read(buf)
		if !s.add(buf[:n]) {
			return // The rank learns by SIGPIPE, as it would without a launcher in between.
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && s.ended.Load():
			s.drain(buf)
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !s.show() {
				return
			}
			s.pipe.SetReadDeadline(time.Time{})
			// Whoever has set ended since has seen its deadline overwritten.
			if s.ended.Load() {
				s.pipe.SetReadDeadline(time.Now().Add(drainAfter))
			}
		case err != nil:
			s.show()
			return
		}
	}
}

// add takes what was read, shows the finished lines and keeps the rest. It tells whether anyone reads.
func (s *stream) add(data []byte) bool {
	end := bytes.LastIndexByte(data, '\n') + 1
	if end > 0 && len(s.pending) == 0 {
		if !s.sink.write(s, data[:end]) {
			return false
		}
	} else if end > 0 {
		s.pending = append(s.pending, data[:end]...)
		if !s.show() {
			return false
		}
	}
	s.pending = append(s.pending, data[end:]...)
	if len(s.pending) > maxPending {
		return s.show()
	}
	return true
}

// show shows what is pending.
func (s *stream) show() bool {
	reads := s.sink.write(s, s.pending)
	s.pending = s.pending[:0]
	return reads
}

// end notes that the rank has ended, so that copy does too, even if some process that has left the rank's group holds the pipe.
func (s *stream) end() {
	s.ended.Store(true)
	s.pipe.SetReadDeadline(time.Now().Add(drainAfter))
}

// drain reads what the pipe holds, without waiting for more.
func (s *stream) drain(buf []byte) {
	defer s.show()
	s.pipe.SetReadDeadline(time.Time{})
	conn, err := s.pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		n, err := 0, error(nil)
		ctlErr := conn.Read(func(fd uintptr) bool {
			n, err = syscall.Read(int(fd), buf)
			return true
		})
		if err == syscall.EINTR {
			continue
		}
		if ctlErr != nil || err != nil || n <= 0 || !s.add(buf[:n]) {
			return
		}
	}
}
