package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// replyTimeout bounds the writing of an answer: a rank has one request under way, so its connection has room
// unless the rank is stopped and has broken the protocol besides.
const replyTimeout = 10 * time.Second

// Service connects a Server with its ranks, one connection each.
type Service struct {
	mu     sync.Mutex
	server *Server
	conns  []net.Conn
}

// NewService serves a job over conns, one for each rank.
func NewService(c Config, conns []net.Conn) *Service {
	return &Service{server: NewServer(c), conns: conns}
}

// Serve answers a rank until its connection ends, which is no error, or until it ends the job with an *Abort
// or a *Violation. Whoever calls it may call Ended and Stranded whenever it tells that something has changed.
func (s *Service) Serve(rank int, changed func()) error {
	in := bufio.NewReaderSize(s.conns[rank], maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return &Violation{rank, fmt.Sprintf("a line longer than %d bytes", maxLine)}
		}
		if err != nil {
			return nil
		}
		s.mu.Lock()
		replies, err := s.server.Handle(rank, string(line[:len(line)-1]))
		inBarrier := s.server.State(rank) == InBarrier || s.server.State(rank) == Finalized
		s.mu.Unlock()
		if err != nil {
			return err
		}
		for _, r := range replies {
			// A rank that cannot be written to is ending, and its end is noticed elsewhere.
			conn := s.conns[r.Rank]
			conn.SetWriteDeadline(time.Now().Add(replyTimeout))
			conn.Write([]byte(r.Line))
		}
		if inBarrier {
			changed()
		}
	}
}

// Gone notes that a rank's process has ended, and returns where the rank stood.
func (s *Service) Gone(rank int) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.Gone(rank)
	return s.server.State(rank)
}

// State is where a rank stands.
func (s *Service) State(rank int) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server.State(rank)
}

// Stranded is Server.Stranded.
func (s *Service) Stranded() (waits, missing int, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server.Stranded()
}
