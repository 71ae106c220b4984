package live

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
)

const (
	// MaxWatchers is the maximum number of watchers of a job.
	MaxWatchers = 8
	// slowest is the time that a watcher has to read a frame.
	slowest = 10 * time.Second
)

// A Server sends reports on a job to its user.
type Server struct {
	greeting Job
	listener *net.UnixListener
	path     string
	before   func(path string) // see Listen
	changed  chan struct{}
	tasks    sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	callers  map[*caller]bool // accepted connections; true for watchers
	watchers int
}

// caller is a connection. It gets only the latest frame, so a slow one costs no memory.
type caller struct {
	conn   *net.UnixConn
	frames chan []byte
}

// Listen begins to serve callers of the same user. The greeting describes the job. before is called with each
// path before a socket or its folder is made there, so that both can be removed if this process is killed.
func Listen(greeting Job, before func(path string)) (*Server, error) {
	for _, path := range sockets() {
		sweep(path)
	}
	var id [4]byte
	rand.Read(id[:])
	name := fmt.Sprintf("%d-%s", greeting.PID, hex.EncodeToString(id[:]))
	s := &Server{greeting: greeting, before: before, changed: make(chan struct{}, 1),
		callers: map[*caller]bool{}}
	err := s.listen(name)
	for range 3 {
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
		err = s.listen(name) // another job has just ended and removed the folder
	}
	if err != nil {
		return nil, err
	}
	s.tasks.Go(s.accept)
	return s, nil
}

// listen makes the socket. It gets its name when it listens, because other processes remove a socket that
// refuses connections.
func (s *Server) listen(name string) error {
	var first string
	err := makeFolder(func(dir string) {
		first, s.path = filepath.Join(dir, name+unready), filepath.Join(dir, name+suffix)
		s.before(first)
		s.before(s.path)
	})
	if err != nil {
		return err
	}
	if s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"}); err != nil {
		return err
	}
	s.listener.SetUnlinkOnClose(false)
	if err = os.Rename(first, s.path); err != nil {
		s.listener.Close()
		os.Remove(first)
	}
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		if _, uid, err := sys.PeerOf(conn); err != nil || uid != os.Getuid() {
			conn.Close()
			continue
		}
		c := &caller{conn: conn, frames: make(chan []byte, 1)}
		s.mu.Lock()
		closed, full := s.closed, len(s.callers) >= MaxWatchers
		if !closed && !full {
			s.callers[c] = false
			s.tasks.Go(func() { s.serve(c) })
		}
		s.mu.Unlock()
		if full {
			refusal := Job{Refused: fmt.Sprintf("%d others watch job %d already", MaxWatchers,
				s.greeting.PID)}
			conn.SetWriteDeadline(time.Now().Add(time.Second))
			writeJob(conn, &refusal)
		}
		if closed || full {
			conn.Close()
		}
	}
}

// serve greets a caller, and sends it frames until the connection ends.
func (s *Server) serve(c *caller) {
	defer s.forget(c)
	greeting := s.greeting
	c.conn.SetDeadline(time.Now().Add(slowest))
	if writeJob(c.conn, &greeting) != nil {
		return
	}
	var request [1]byte
	if n, _ := c.conn.Read(request[:]); n == 0 || request[0] != Watch {
		return
	}
	s.mu.Lock()
	if !s.closed {
		s.callers[c] = true
		s.watchers++
	}
	s.mu.Unlock()
	s.tellChanged()
	c.conn.SetReadDeadline(time.Time{})
	gone := make(chan struct{})
	go func() { // a watcher sends nothing more; anything that it sends ends its service
		c.conn.Read(request[:])
		close(gone)
	}()
	for {
		select {
		case <-gone:
			return
		case frame := <-c.frames:
			c.conn.SetWriteDeadline(time.Now().Add(slowest))
			if _, err := c.conn.Write(frame); err != nil {
				return
			}
		}
	}
}

func (s *Server) forget(c *caller) {
	c.conn.Close()
	s.mu.Lock()
	if s.callers[c] {
		s.watchers--
	}
	delete(s.callers, c)
	s.mu.Unlock()
	s.tellChanged()
}

func (s *Server) tellChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Changed is signaled when a watcher has come or gone.
func (s *Server) Changed() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.changed
}

// Watchers returns the number of watchers. A nil server has none.
func (s *Server) Watchers() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers
}

// Publish sends a report to all watchers. It does not wait for them: a watcher that has not read the previous
// frame gets this one in its place.
func (s *Server) Publish(j *Job) error {
	frame, err := encode(j)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, watches := range s.callers {
		if !watches {
			continue
		}
		select {
		case <-c.frames:
		default:
		}
		c.frames <- frame
	}
	return nil
}

// Close ends the service, and removes the socket and, after the last job, its folder.
func (s *Server) Close() {
	if s == nil {
		return
	}
	os.Remove(s.path)
	os.Remove(filepath.Dir(s.path))
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.callers {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
}
